"""What the shop does in the background.

A run may be delivered twice, when the worker that had it vanished after the work and before the answer. So each task
here can be repeated: it looks first whether there is anything left to do.
"""

import asyncio
import random
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import Count, Sum
from django.utils import timezone

from cronoq_django import Backoff, cron, current_run, every, job, task
from example_project.shop import outside
from example_project.shop.models import Invoice, Order, Product

WARSAW = "Europe/Warsaw"
CUSTOMERS = ("ada@example.com", "grace@example.com", "edsger@example.com", "barbara@example.com")
OPEN = (Order.Status.NEW, Order.Status.PAID, Order.Status.INVOICED)
SHIPMENT = 100  # orders that one run ships


@job("place-sample-order", every(timedelta(seconds=5)), description="A customer buys something.")
@task
def place_sample_order() -> str:
    """Place an order; its invoice is issued if and when this is committed. One order a slot, however often it runs."""
    run = current_run()
    slot = run.scheduled_for if run else None
    number = f"{slot:%Y%m%d-%H%M%S}" if slot else f"{run.id if run else uuid4()}"
    bought = {
        "customer_email": random.choice(CUSTOMERS),  # noqa: S311
        "total": Decimal(random.randrange(500, 50_000)) / 100,  # noqa: S311
        "status": Order.Status.PAID,
    }
    with transaction.atomic():
        order, placed = Order.objects.get_or_create(number=number, defaults=bought)
        if placed:
            issue_invoice.enqueue(order.pk)
    return order.number


@task
def issue_invoice(order_id: int) -> str:
    """Issue the order's invoice, or find it issued."""
    with transaction.atomic():
        order = Order.objects.select_for_update().get(pk=order_id)
        invoice, issued = Invoice.objects.get_or_create(
            order=order, defaults={"number": f"FV-{order.number}", "issued_at": timezone.now()}
        )
        if issued:
            order.status = Order.Status.INVOICED
            order.save(update_fields=["status"])
    return invoice.number


@task(queue_name="mail", max_attempts=5, timeout=30, backoff=Backoff(first=1, factor=1, cap=1))
def send_invoice(order_id: int) -> str:
    """Mail the invoice to the customer. The mail server is busy, always, until it is asked the third time."""
    invoice = Invoice.objects.select_related("order").get(order_id=order_id)
    if invoice.sent_at:
        return f"{invoice} had been sent already"
    run = current_run()
    outside.deliver(invoice.order.customer_email, f"Invoice {invoice}", busy=run is not None and run.attempt < 3)
    invoice.sent_at = timezone.now()
    invoice.save(update_fields=["sent_at"])
    return f"{invoice} sent to {invoice.order.customer_email}"


@task(max_attempts=2, backoff=Backoff(first=1, factor=1, cap=1))
def charge_expired_card(order_id: int) -> None:
    """Charge a card that expired: no number of attempts will help."""
    order = Order.objects.get(pk=order_id)
    outside.charge(order.customer_email, order.total)


@task
def ship_orders() -> int:
    """Ship what is invoiced; how many. Orders that another run ships at the same time are left to it."""
    with transaction.atomic():
        invoiced = Order.objects.filter(status=Order.Status.INVOICED).select_for_update(skip_locked=True)
        packed = list(invoiced.order_by("created_at").values_list("pk", flat=True)[:SHIPMENT])
        return Order.objects.filter(pk__in=packed).update(status=Order.Status.SHIPPED)


@job("count-open-orders", cron("* * * * *"), description="How many orders wait for what, every minute.")
@task
def count_open_orders() -> dict[str, int]:
    """The orders that are not shipped, by status."""
    counted = Order.objects.filter(status__in=OPEN).order_by().values_list("status").annotate(Count("pk"))
    return dict.fromkeys(map(str, OPEN), 0) | dict(counted)


@job(
    "close-the-day",
    cron("30 2 * * *", timezone=WARSAW),
    description="Adds up the day before. Once a year there is no half past two: then right after, at three.",
)
@task(timeout=timedelta(minutes=10))
def close_the_day() -> dict[str, Any]:
    """Orders and revenue of the day in Warsaw that was over when the slot was due, not when this runs."""
    run = current_run()
    slot = (run.scheduled_for if run else None) or timezone.now()
    day = slot.astimezone(ZoneInfo(WARSAW)).date() - timedelta(days=1)
    with timezone.override(ZoneInfo(WARSAW)):  # what __date means by a day
        sums = Order.objects.filter(created_at__date=day).aggregate(orders=Count("pk"), revenue=Sum("total"))
    return {"day": f"{day}", "orders": sums["orders"], "revenue": f"{sums['revenue'] or 0:.2f}"}


@task
async def refresh_stock() -> dict[str, int]:
    """Ask the supplier about every product, all at once, and write down the answers."""
    products = [product async for product in Product.objects.all()]
    answers = await asyncio.gather(*(outside.ask_supplier(product.sku) for product in products))
    for product, answer in zip(products, answers, strict=True):
        product.in_stock, product.counted_at = answer, timezone.now()
        await product.asave(update_fields=["in_stock", "counted_at"])
    return {product.sku: product.in_stock for product in products}


@task
def report_stock(low: int = 10) -> list[str]:
    """The products of which fewer than `low` are left."""
    return list(Product.objects.filter(in_stock__lt=low).values_list("sku", flat=True))
