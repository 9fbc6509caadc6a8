"""Scripts as the cluster knows them: recorded by the leaders' processes, or by hand."""

from django.db.models.functions import Now

from cronoq_django.errors import NotFound
from cronoq_django.models import Script
from cronoq_django.models.fields import TEXT_LIMIT
from cronoq_django.registry import hash_of
from cronoq_django.store.arguments import text
from cronoq_django.store.session import alias_of, on_alias


def upsert_script(name: str, *, signature: str, doc: str = "", using: str | None = None) -> Script:
    """Record a script of that name, or what it is now; seen just now. For scripts that other programs execute: those
    of registered tasks the leader records by itself.

    `signature`: its parameters as text, such as "(order, *, again=False)". The row's `signature_hash` changes with it.
    Raises TypeError or ValueError, naming the argument.
    """
    columns = {
        "signature": text("signature", signature, 4000),
        "signature_hash": hash_of(signature),
        "doc": text("doc", doc, TEXT_LIMIT, is_optional=True),
        "last_seen_at": Now(),
    }
    with on_alias(using):
        Script.objects.using(alias_of(using)).update_or_create(name=text("name", name, 500), defaults=columns)
    return get_script(name, using=using)


def get_script(name: str, *, using: str | None = None) -> Script:
    """The script of that name, with its signature, and the hash of that. Raises NotFound; TypeError or ValueError."""
    found = Script.objects.using(alias_of(using)).filter(name=text("name", name, 500)).first()
    if found is None:
        raise NotFound(f"there is no script {name!r}")
    return found
