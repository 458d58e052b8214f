"""The mailbox. New mails go to the outbox and are all sent at one time, the end of the day on which the office stands still."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

from environments.workplace_assistant.databases import EMAILS
from environments.workplace_assistant.searching import page_of
from environments.workplace_assistant.table import Row
from environments.workplace_assistant.times import read_time
from environments.workplace_assistant.tooling import Argument, Page, PageSize, Toolkit, offered

NOW = "2023-11-30 23:59:00"

EmailId = Annotated[Any, Argument("Id of the mail", required=True)]
Recipient = Annotated[Any, Argument("Address of the recipient", required=True)]


class EmailTool(Toolkit):
    prefix = "email_"

    @offered()
    def get_email_information_by_id(
        self,
        email_id: EmailId = None,
        field: Annotated[Any, Argument(f"What to tell of it: {', '.join(EMAILS)}", required=True)] = None,
    ) -> Any:
        """Tell one detail of a mail."""
        if not email_id:
            return "Email ID not provided."
        if not field:
            return "Field not provided."
        row = self._mail(email_id)
        if row is None:
            return "Email not found."
        if field not in EMAILS:
            return f"Field '{field}' not found. Available fields: {', '.join(EMAILS)}"
        return {field: row[field]}

    @offered()
    def search_emails(
        self,
        query: Annotated[Any, Argument("Words that must all occur in subject, body or address")] = "",
        date_min: Annotated[Any, Argument("First day, YYYY-MM-DD")] = None,
        date_max: Annotated[Any, Argument("Last day, YYYY-MM-DD")] = None,
        page: Page = 1,
        page_size: PageSize = 5,
    ) -> Any:
        """Find mails by words and by the day on which they were sent, the newest first."""
        try:
            found = page_of(self._sent_between(self._with_words(query), date_min, date_max), "emails", page, page_size)
        except Exception as e:  # noqa: BLE001 - the model reads it
            return f"Error searching emails: {e}"
        return found if found["pagination"]["total_emails"] else "No emails found."

    @offered(changes=True)
    def send_email(
        self,
        recipient: Recipient = None,
        subject: Annotated[Any, Argument("Subject", required=True)] = None,
        body: Annotated[Any, Argument("Text of the mail", required=True)] = None,
    ) -> Any:
        """Send a mail."""
        try:
            return self._send(recipient, subject, body)
        except Exception as e:  # noqa: BLE001 - the model reads it
            return f"Error sending email: {e}"

    @offered(changes=True)
    def delete_email(self, email_id: EmailId = None) -> Any:
        """Delete a mail."""
        if not email_id:
            return "Email ID not provided."
        places = self.databases.emails.find(email_id)
        self.databases.emails.delete(places)
        return "Email deleted successfully." if places else "Email not found."

    @offered(changes=True)
    def forward_email(self, email_id: EmailId = None, recipient: Recipient = None) -> Any:
        """Send a mail on to somebody else."""
        if not email_id or not recipient:
            return "Email ID or recipient not provided."
        if _no_address(recipient):
            return "Invalid recipient email address."
        row = self._mail(email_id)
        if row is None:
            return "Email not found."
        sent = self.send_email(recipient, f"FW: {row['subject']}", row["body"])
        return sent if "Error" in sent or "Invalid" in sent else "Email forwarded successfully."

    @offered(changes=True)
    def reply_email(
        self, email_id: EmailId = None, body: Annotated[Any, Argument("Text of the answer", required=True)] = None
    ) -> Any:
        """Answer a mail."""
        if not email_id or not body:
            return "Email ID or body not provided."
        row = self._mail(email_id)
        if row is None:
            return "Email not found."
        sent = self.send_email(row["sender/recipient"], f"RE: {row['subject']}", body)
        return sent if "Error" in sent or "Invalid" in sent else "Email replied successfully."

    def _mail(self, email_id: Any) -> Row | None:
        places = self.databases.emails.find(email_id)
        return self.databases.emails.row(places[0]) if places else None

    def _send(self, recipient: Any, subject: Any, body: Any) -> str:
        if not recipient or not subject or not body:
            return "Recipient, subject, or body not provided."
        if _no_address(recipient):
            return "Invalid recipient email address."
        cells = (str(self.databases.emails.next_id()), "outbox", recipient.lower(), subject, NOW, body)
        self.databases.emails.append(dict(zip(EMAILS, cells, strict=True)))
        return "Email sent successfully."

    def _with_words(self, query: Any) -> list[Row]:
        words = query.lower().split()
        found = (row for _, row in self.databases.emails.rows())
        mails = [row for row in found if not words or _has_all(row, words)]
        return sorted(mails, key=lambda row: str(row["sent_datetime"]), reverse=True)  # equal times keep their order

    def _sent_between(self, mails: list[Row], first: Any, last: Any) -> list[Row]:
        if first:
            mails = [row for row in mails if self._day(row["sent_datetime"]) >= self._day(first)]
        if last:
            mails = [row for row in mails if self._day(row["sent_datetime"]) <= self._day(last)]
        return mails

    def _day(self, text: Any) -> date:
        time = read_time(text, self.now)
        if time is None:
            raise ValueError(f"{text!r} is no date")
        return time.date()


def _no_address(recipient: Any) -> bool:
    return "@" not in recipient or "." not in recipient


def _has_all(row: Row, words: list[str]) -> bool:
    text = f"{row['subject']} {row['body']} {row['sender/recipient']}".lower()
    return all(word in text for word in words)
