"""The shop: its tasks as plain functions, its jobs in code and in the fixture."""

from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import transaction

from cronoq_django import registry
from cronoq_django.models import Job, JobChange, JobRevision, Run
from cronoq_django.models.choices import Kind, Source, Status
from cronoq_django.store.jobs import acting
from cronoq_django.tasks.context import RunContext, enter
from example_project.shop import tasks
from example_project.shop.models import Invoice, Order, Product
from example_project.shop.outside import CardExpired, MailServerBusy

pytestmark = pytest.mark.django_db


def in_run(task, *args, attempt=1, slot=None):
    """Call a task as a worker does: with the context of its run."""

    def call():
        enter(RunContext(id=uuid4(), script=task.script_name, attempt=attempt, scheduled_for=slot))
        return task.call(*args)

    return copy_context().run(call)


@pytest.fixture
def order():
    return Order.objects.create(number="1", customer_email="ada@example.com", total=Decimal("12.50"), status="paid")


def test_an_order_and_the_run_that_invoices_it_come_together():
    """Without the same transaction an order stayed without an invoice, or an invoice was issued for no order."""
    number = tasks.place_sample_order.call()
    order, run = Order.objects.get(number=number), Run.objects.get()
    assert (run.script, run.args, run.status) == (tasks.issue_invoice.script_name, [order.pk], Status.QUEUED)


def test_an_order_that_is_rolled_back_leaves_no_run():
    with transaction.atomic():
        tasks.place_sample_order.call()
        assert Run.objects.exists()
        transaction.set_rollback(True)
    assert not Order.objects.exists()
    assert not Run.objects.exists()


def test_a_slot_delivered_twice_places_one_order():
    """The worker vanished after its commit, and the next one placed the order again."""
    slot = datetime(2026, 11, 30, 12, 0, 5, tzinfo=UTC)
    assert in_run(tasks.place_sample_order, slot=slot) == in_run(tasks.place_sample_order, slot=slot)
    assert Order.objects.count() == Run.objects.count() == 1


def test_orders_of_different_slots_are_different():
    slot = datetime(2026, 11, 30, 12, 0, 5, tzinfo=UTC)
    in_run(tasks.place_sample_order, slot=slot)
    in_run(tasks.place_sample_order, slot=slot + timedelta(seconds=5))
    assert Order.objects.count() == 2


def test_an_invoice_is_issued_once(order):
    assert tasks.issue_invoice.call(order.pk) == tasks.issue_invoice.call(order.pk)
    order.refresh_from_db()
    assert (Invoice.objects.count(), order.status) == (1, Order.Status.INVOICED)


def test_a_repeated_invoice_does_not_take_a_shipped_order_back(order):
    tasks.issue_invoice.call(order.pk)
    tasks.ship_orders.call()
    tasks.issue_invoice.call(order.pk)
    order.refresh_from_db()
    assert order.status == Order.Status.SHIPPED


def test_the_mail_server_takes_the_invoice_at_the_third_attempt(order):
    tasks.issue_invoice.call(order.pk)
    for attempt in (1, 2):
        with pytest.raises(MailServerBusy, match="try again later"):
            in_run(tasks.send_invoice, order.pk, attempt=attempt)
        assert Invoice.objects.get().sent_at is None
    assert in_run(tasks.send_invoice, order.pk, attempt=3) == "FV-1 sent to ada@example.com"
    assert Invoice.objects.get().sent_at is not None


def test_an_invoice_is_mailed_once(order):
    tasks.issue_invoice.call(order.pk)
    tasks.send_invoice.call(order.pk)
    sent_at = Invoice.objects.get().sent_at
    assert in_run(tasks.send_invoice, order.pk, attempt=1) == "FV-1 had been sent already"
    assert Invoice.objects.get().sent_at == sent_at


def test_an_expired_card_is_never_charged(order):
    for attempt in (1, 2):
        with pytest.raises(CardExpired, match=r"12\.50 not charged"):
            in_run(tasks.charge_expired_card, order.pk, attempt=attempt)


def test_only_invoiced_orders_are_shipped(order):
    paid = Order.objects.create(number="2", customer_email="grace@example.com", total=1, status="paid")
    tasks.issue_invoice.call(order.pk)
    assert (tasks.ship_orders.call(), tasks.ship_orders.call()) == (1, 0)
    paid.refresh_from_db()
    assert paid.status == Order.Status.PAID


def test_open_orders_are_counted_by_status(order):
    Order.objects.create(number="2", customer_email="grace@example.com", total=1, status="shipped")
    assert tasks.count_open_orders.call() == {"new": 0, "paid": 1, "invoiced": 0}


def test_the_day_that_is_closed_is_the_one_in_warsaw(order):
    """An order of half an hour before midnight in UTC belongs to the next day in Warsaw."""
    for number, moment in (
        ("late", datetime(2026, 7, 9, 22, 30, tzinfo=UTC)),
        ("early", datetime(2026, 7, 9, 21, 30, tzinfo=UTC)),
    ):
        placed = Order.objects.create(number=number, customer_email="ada@example.com", total=Decimal("10.00"))
        Order.objects.filter(pk=placed.pk).update(created_at=moment)
    slot = datetime(2026, 7, 11, 0, 30, tzinfo=UTC)  # half past two
    closed = in_run(tasks.close_the_day, slot=slot)
    assert closed == {"day": "2026-07-10", "orders": 1, "revenue": "10.00"}


def test_a_day_without_orders_is_closed_too():
    slot = datetime(2026, 7, 11, 0, 30, tzinfo=UTC)
    assert in_run(tasks.close_the_day, slot=slot) == {"day": "2026-07-10", "orders": 0, "revenue": "0.00"}


def test_stock_is_refreshed_asynchronously():
    Product.objects.create(sku="TEAPOT")
    Product.objects.create(sku="KETTLE")
    assert tasks.refresh_stock.call() == dict(Product.objects.values_list("sku", "in_stock"))
    assert not Product.objects.filter(counted_at=None).exists()


def test_the_stock_report_names_what_runs_low():
    Product.objects.create(sku="TEAPOT", in_stock=9)
    Product.objects.create(sku="KETTLE", in_stock=10)
    assert tasks.report_stock.call(low=10) == ["TEAPOT"]


def test_jobs_are_declared_in_code():
    jobs = [job for job in registry.jobs().values() if job.columns["script"].startswith("example_project.")]
    declared = {job.name: job.columns for job in jobs}
    assert {name: columns["kind"] for name, columns in declared.items()} == {
        "place-sample-order": Kind.EVERY,
        "count-open-orders": Kind.CRON,
        "close-the-day": Kind.CRON,
    }
    assert declared["place-sample-order"]["every"] == timedelta(seconds=5)
    assert declared["close-the-day"]["timezone"] == "Europe/Warsaw"


def test_the_fixture_brings_jobs_that_somebody_made_in_the_admin():
    """Fixtures are written past save(): revisions and the plan's outbox are left to the database."""
    with acting("ada"):
        call_command("loaddata", "shop", verbosity=0)
    jobs = {job.name: job for job in Job.objects.all()}
    assert {name: (job.kind, job.source) for name, job in jobs.items()} == {
        "ship-orders": (Kind.MANUAL, Source.ADMIN),
        "weekly-stock-report": (Kind.CRON, Source.ADMIN),
    }
    for job in jobs.values():
        job.full_clean()
    assert list(JobRevision.objects.values_list("number", "changed_by")) == [(1, "ada")] * 2
    assert set(JobChange.objects.values_list("job", flat=True)) == {job.pk for job in jobs.values()}
    assert Product.objects.count() == 3


def test_a_fixture_loaded_again_changes_nothing():
    call_command("loaddata", "shop", verbosity=0)
    call_command("loaddata", "shop", verbosity=0)
    assert set(Job.objects.values_list("revision", "schedule_revision")) == {(1, 1)}
    assert JobRevision.objects.count() == JobChange.objects.count() == 2


@pytest.mark.parametrize("model", ["product", "order", "invoice"])
def test_the_admin_shows_the_shop(admin_client, order, model):
    call_command("loaddata", "shop", verbosity=0)
    tasks.issue_invoice.call(order.pk)
    pages = admin_client.get(f"/admin/shop/{model}/"), admin_client.get(f"/admin/shop/{model}/add/")
    assert [page.status_code for page in pages] == [200, 200]
