"""The tasks of the projects."""

from __future__ import annotations

import re
from typing import Annotated, Any

from environments.workplace_assistant.databases import TASKS
from environments.workplace_assistant.searching import narrowed
from environments.workplace_assistant.tooling import Argument, Toolkit, offered

LISTS = ("Backlog", "In Progress", "In Review", "Completed")
BOARDS = ("Back end", "Front end", "Design")
_CHOICES = {"board": ("Board", BOARDS), "list_name": ("List", LISTS)}
_ADDRESS = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}$")

TaskId = Annotated[Any, Argument("Id of the task", required=True)]


class ProjectManagementTool(Toolkit):
    prefix = "project_management_"

    @offered()
    def get_task_information_by_id(
        self,
        task_id: TaskId = None,
        field: Annotated[Any, Argument(f"What to tell of it: {', '.join(TASKS)}", required=True)] = None,
    ) -> Any:
        """Tell one detail of a task."""
        if not task_id:
            return "Task ID not provided."
        if not field:
            return "Field not provided."
        places = self.databases.tasks.find(task_id)
        if not places:
            return "Task not found."
        return {field: self.databases.tasks.row(places[0])[field]} if field in TASKS else "Field not found."

    @offered()
    def search_tasks(
        self,
        task_name: Annotated[Any, Argument("Text in the name")] = None,
        assigned_to_email: Annotated[Any, Argument("Address of whoever has it")] = None,
        list_name: Annotated[Any, Argument("Text in the list's name")] = None,
        due_date: Annotated[Any, Argument("Day it is due, YYYY-MM-DD")] = None,
        board: Annotated[Any, Argument("Text in the board's name")] = None,
    ) -> Any:
        """Find tasks that fit everything that is given."""
        texts = {"task_name": task_name, "list_name": list_name, "due_date": due_date, "board": board}
        if not assigned_to_email and not any(texts.values()):
            return "No search parameters provided."
        rows = [row for _, row in self.databases.tasks.rows()]
        if assigned_to_email:
            if not _ADDRESS.match(assigned_to_email):
                return "Invalid email format for assigned_to_email."
            wanted = assigned_to_email.lower()
            rows = [r for r in rows if isinstance(r["assigned_to_email"], str) and r["assigned_to_email"].lower() == wanted]
        for column, query in texts.items():
            if query:
                rows = narrowed(rows, column, query)
        return rows

    @offered(changes=True)
    def create_task(
        self,
        task_name: Annotated[Any, Argument("Name of the task", required=True)] = None,
        assigned_to_email: Annotated[Any, Argument("Address of whoever gets it", required=True)] = None,
        list_name: Annotated[Any, Argument(f"One of {', '.join(LISTS)}", required=True)] = None,
        due_date: Annotated[Any, Argument("Day it is due, YYYY-MM-DD", required=True)] = None,
        board: Annotated[Any, Argument(f"One of {', '.join(BOARDS)}", required=True)] = None,
    ) -> Any:
        """Create a task."""
        if not (task_name and assigned_to_email and list_name and due_date and board):
            return "Missing task details."
        assignee = assigned_to_email.lower()
        wrong = self._unknown_assignee(assignee) or _not_listed("list_name", list_name) or _not_listed("board", board)
        if wrong:
            return wrong
        task_id = str(self.databases.tasks.next_id()).zfill(8)
        self.databases.tasks.append(
            dict(zip(TASKS, (task_id, task_name, assignee, list_name, due_date, board), strict=True)),
        )
        return task_id

    @offered(changes=True)
    def delete_task(self, task_id: TaskId = None) -> Any:
        """Delete a task."""
        if not task_id:
            return "Task ID not provided."
        places = self.databases.tasks.find(task_id)
        self.databases.tasks.delete(places)
        return "Task deleted successfully." if places else "Task not found."

    @offered(changes=True)
    def update_task(
        self,
        task_id: TaskId = None,
        field: Annotated[Any, Argument(f"What to change: {', '.join(TASKS[1:])}", required=True)] = None,
        new_value: Annotated[Any, Argument("Its new value", required=True)] = None,
    ) -> Any:
        """Change one detail of a task."""
        if not task_id or not field or not new_value:
            return "Task ID, field, or new value not provided."
        if field == "assigned_to_email":
            new_value = new_value.lower()
        wrong = self._wrong_value(field, new_value)
        if wrong:
            return wrong
        places = self.databases.tasks.find(task_id)
        if not places:
            return "Task not found."
        if field not in TASKS:
            return "Field not valid."
        self.databases.tasks.write(places, field, new_value)
        return "Task updated successfully."

    def _wrong_value(self, field: Any, value: Any) -> str | None:
        if field == "assigned_to_email":
            return self._unknown_assignee(value)
        return _not_listed(field, value) if field in _CHOICES else None

    def _unknown_assignee(self, address: str) -> str | None:
        known = (row["assigned_to_email"] for _, row in self.databases.tasks.rows())
        if any(isinstance(k, str) and k.lower() == address for k in known):
            return None
        return "Assignee email not valid. Please choose from the list of team members."


def _not_listed(field: str, value: Any) -> str | None:
    what, choices = _CHOICES[field]
    return None if value in choices else f"{what} not valid. Please choose from: {', '.join(map(repr, choices))}."
