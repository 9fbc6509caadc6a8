"""The demo's work: the shop as it is found in the admin, and something of everything to run."""

from datetime import timedelta

from django.contrib.auth.models import User
from django.core.management import call_command

from cronoq_django.models import Job
from cronoq_django.models.choices import Kind
from cronoq_django.store import jobs
from example_project.demo.report import database_now
from example_project.shop import tasks
from example_project.shop.models import Order

ADMIN, PASSWORD = "admin", "demo"
BY_HAND = "ship-orders"  # as in the fixture
ONE_OFF = "count-the-stock-once"
ONE_OFF_IN = timedelta(seconds=8)
DELAYS = (timedelta(seconds=3), timedelta(seconds=6))


def furnish() -> str:
    """Make the tables, the jobs that somebody made in the admin, and the admin's user; how to log in."""
    call_command("migrate", verbosity=0, interactive=False)
    if not Job.objects.filter(name=BY_HAND).exists():  # what was changed in the admin since stays changed
        with jobs.acting(ADMIN):
            call_command("loaddata", "shop", verbosity=0)
    user = User.objects.filter(username=ADMIN).first() or User.objects.create_superuser(ADMIN, password=PASSWORD)
    return f"user {ADMIN}, password {PASSWORD if user.check_password(PASSWORD) else 'as you changed it'}"


def submit() -> None:
    """Submit what needs no schedule: something flaky, hopeless, async, delayed, one-off and by hand."""
    order = Order.objects.get(number=tasks.place_sample_order.call())
    tasks.issue_invoice.call(order.pk)
    tasks.send_invoice.enqueue(order.pk)
    tasks.charge_expired_card.enqueue(order.pk)
    tasks.refresh_stock.enqueue()
    for delay in DELAYS:
        tasks.ship_orders.using(run_after=delay).enqueue()
    jobs.run_job_now(jobs.get_job_by_name(BY_HAND).pk, actor=ADMIN)
    jobs.upsert_job(
        ONE_OFF,
        actor=ADMIN,
        kind=Kind.ONCE,
        run_at=database_now() + ONE_OFF_IN,
        script=tasks.refresh_stock.script_name,
        description="Once is enough.",
        enabled=True,
    )
