"""The shop: a small application with something to do in the background."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "example_project.shop"
    verbose_name = "Shop"
