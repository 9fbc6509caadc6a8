"""What the shop sells, to whom, and what it charges for it."""

from django.core.validators import MinValueValidator
from django.db import models


class Product(models.Model):
    """Something in the warehouse."""

    sku = models.CharField("SKU", max_length=20, unique=True)
    in_stock = models.PositiveIntegerField(default=0)
    counted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("sku",)

    def __str__(self) -> str:
        return self.sku


class Order(models.Model):
    """What a customer bought."""

    class Status(models.TextChoices):
        NEW = "new", "new"
        PAID = "paid", "paid"
        INVOICED = "invoiced", "invoiced"
        SHIPPED = "shipped", "shipped"

    number = models.CharField(max_length=40, unique=True)
    customer_email = models.EmailField()
    total = models.DecimalField(max_digits=10, decimal_places=2, validators=[MinValueValidator(0)])
    status = models.CharField(max_length=10, choices=Status, default=Status.NEW)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return self.number


class Invoice(models.Model):
    """The bill for an order, of which there is only one."""

    order = models.OneToOneField(Order, models.PROTECT)
    number = models.CharField(max_length=50, unique=True)
    issued_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-issued_at",)

    def __str__(self) -> str:
        return self.number
