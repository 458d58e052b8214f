"""The customers."""

from __future__ import annotations

from typing import Annotated, Any

from environments.workplace_assistant.databases import CUSTOMERS
from environments.workplace_assistant.searching import narrowed, page_of
from environments.workplace_assistant.table import Row
from environments.workplace_assistant.tooling import Argument, Page, PageSize, Toolkit, offered

STATUSES = ("Qualified", "Won", "Lost", "Lead", "Proposal")
PRODUCTS = ("Software", "Hardware", "Services", "Consulting", "Training")
_CHOICES = {"status": ("Status", STATUSES), "product_interest": ("Product interest", PRODUCTS)}
_ADDRESSES = ("assigned_to_email", "customer_email")
_CHANGEABLE = (
    "customer_name",
    "assigned_to_email",
    "customer_email",
    "customer_phone",
    "last_contact_date",
    "product_interest",
    "status",
    "notes",
    "follow_up_by",
)

CustomerId = Annotated[Any, Argument("Id of the customer", required=True)]
Phone = Annotated[Any, Argument("Telephone number")]
Address = Annotated[Any, Argument("Address of the customer")]
Product = Annotated[Any, Argument(f"One of {', '.join(PRODUCTS)}")]


class CustomerRelationshipManagerTool(Toolkit):
    prefix = "customer_relationship_manager_"

    @offered()
    def search_customers(
        self,
        *,
        customer_name: Annotated[Any, Argument("Text in the name")] = None,
        customer_email: Annotated[Any, Argument("Text in the customer's address")] = None,
        product_interest: Annotated[Any, Argument("Text in the product of interest")] = None,
        status: Annotated[Any, Argument("Text in the status")] = None,
        assigned_to_email: Annotated[Any, Argument("Text in the address of whoever cares for the customer")] = None,
        last_contact_date_min: Annotated[Any, Argument("Earliest last contact, YYYY-MM-DD")] = None,
        last_contact_date_max: Annotated[Any, Argument("Latest last contact, YYYY-MM-DD")] = None,
        follow_up_by_min: Annotated[Any, Argument("Earliest day to follow up, YYYY-MM-DD")] = None,
        follow_up_by_max: Annotated[Any, Argument("Latest day to follow up, YYYY-MM-DD")] = None,
        page: Page = 1,
        page_size: PageSize = 5,
    ) -> Any:
        """Find customers that fit everything that is given."""
        texts = {
            "customer_name": customer_name,
            "customer_email": customer_email,
            "product_interest": product_interest,
            "status": status,
            "assigned_to_email": assigned_to_email,
        }
        dates = {
            "last_contact_date": (last_contact_date_min, last_contact_date_max),
            "follow_up_by": (follow_up_by_min, follow_up_by_max),
        }
        if not any(texts.values()) and not any(bound for bounds in dates.values() for bound in bounds):
            return "No search parameters provided. Please provide at least one parameter."
        rows = [row for _, row in self.databases.customers.rows()]
        for column, query in texts.items():
            if query:
                rows = narrowed(rows, column, query)
        for column, bounds in dates.items():
            rows = [row for row in rows if _within(row[column], *bounds)]
        found = page_of(rows, "customers", page, page_size)
        return found if rows else "No customers found."

    @offered(changes=True)
    def update_customer(
        self,
        customer_id: CustomerId = None,
        field: Annotated[Any, Argument(f"What to change: {', '.join(_CHANGEABLE)}", required=True)] = None,
        new_value: Annotated[Any, Argument("Its new value", required=True)] = None,
    ) -> Any:
        """Change one detail of a customer."""
        if not customer_id or not field or not new_value:
            return "Customer ID, field, or new value not provided."
        if field in _CHOICES and new_value not in _CHOICES[field][1]:
            what, choices = _CHOICES[field]
            return f"{what} not valid. Please choose from: {', '.join(map(repr, choices))}"
        if field in _ADDRESSES:
            new_value = new_value.lower()
        places = self.databases.customers.find(customer_id)
        if not places:
            return "Customer not found."
        if field not in CUSTOMERS:
            return f"Field not valid. Please choose from: {', '.join(map(repr, _CHANGEABLE))}"
        self.databases.customers.write(places, field, new_value)
        return "Customer updated successfully."

    @offered(changes=True)
    def add_customer(
        self,
        *,
        customer_name: Annotated[Any, Argument("Name of the customer", required=True)] = None,
        assigned_to_email: Annotated[Any, Argument("Address of whoever cares for the customer", required=True)] = None,
        status: Annotated[Any, Argument(f"One of {', '.join(STATUSES)}", required=True)] = None,
        customer_email: Address = None,
        customer_phone: Phone = None,
        last_contact_date: Annotated[Any, Argument("Day of the last contact, YYYY-MM-DD")] = None,
        product_interest: Product = None,
        notes: Annotated[Any, Argument("Notes")] = "",
        follow_up_by: Annotated[Any, Argument("Day to follow up, YYYY-MM-DD")] = None,
    ) -> Any:
        """Add a customer."""
        if not (customer_name and assigned_to_email and status):
            return "Please provide all required fields: customer_name, assigned_to_email, status."
        row = {
            "customer_id": "",
            "assigned_to_email": assigned_to_email.lower(),
            "customer_name": customer_name,
            "customer_email": customer_email.lower() if customer_email else customer_email,
            "customer_phone": customer_phone,
            "last_contact_date": last_contact_date,
            "product_interest": product_interest,
            "status": status,
            "follow_up_by": follow_up_by,
            "notes": notes,
        }
        row["customer_id"] = str(self.databases.customers.next_id()).zfill(8)
        self.databases.customers.append(row)
        return row["customer_id"]

    @offered(changes=True)
    def delete_customer(self, customer_id: CustomerId = None) -> Any:
        """Delete a customer."""
        if not customer_id:
            return "Customer ID not provided."
        places = self.databases.customers.find(customer_id)
        self.databases.customers.delete(places)
        return "Customer deleted successfully." if places else "Customer not found."


def _within(cell: Row | Any, first: Any, last: Any) -> bool:
    """Compared as text; a missing cell is never within bounds."""
    if not first and not last:
        return True
    return cell is not None and (not first or cell >= first) and (not last or cell <= last)
