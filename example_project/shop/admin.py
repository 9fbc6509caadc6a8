"""The shop's own pages, beside those of the jobs and runs."""

from django.contrib import admin

from example_project.shop.models import Invoice, Order, Product


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ("sku", "in_stock", "counted_at")
    search_fields = ("sku",)


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ("number", "customer_email", "total", "status", "created_at")
    list_filter = ("status",)
    search_fields = ("number", "customer_email")
    readonly_fields = ("created_at",)
    date_hierarchy = "created_at"


@admin.register(Invoice)
class InvoiceAdmin(admin.ModelAdmin):
    list_display = ("number", "order", "issued_at", "sent_at")
    list_select_related = ("order",)
    search_fields = ("number", "order__number")
    raw_id_fields = ("order",)
