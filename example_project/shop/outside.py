"""The outside world, as badly as it behaves: a mail server that is busy, cards that expire, a supplier who is slow."""

import asyncio
import random
from decimal import Decimal


class MailServerBusy(Exception):  # noqa: N818  (it reads as what it says)
    """The server takes no mail at the moment; it may later."""


class CardExpired(Exception):  # noqa: N818
    """No later attempt will charge this card either."""


def deliver(to: str, subject: str, *, busy: bool) -> None:
    """Hand a mail over to the mail server."""
    if busy:
        raise MailServerBusy(f"421 4.3.2 Too many connections, try again later: {subject!r} for {to}")


def charge(email: str, amount: Decimal) -> None:
    """Charge the customer's card, which expired last year."""
    raise CardExpired(f"The card of {email} expired in 11/25: {amount} not charged.")


async def ask_supplier(sku: str) -> int:
    """How many of these the supplier has sent us."""
    await asyncio.sleep(random.uniform(0.05, 0.2))  # noqa: S311
    return random.randrange(5, 50)  # noqa: S311
