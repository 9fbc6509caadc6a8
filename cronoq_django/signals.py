"""Signals of a leader-command process, for code that embeds one. Sent in the thread that leads, which waits for the
receivers: keep them short. One that raises is logged and harms nothing.

>>> @receiver(leadership_lost)
... def on_loss(sender, leader, epoch, reason, **kwargs):
...     alert(f"epoch {epoch} ended: {reason}")
"""

from django.dispatch import Signal

leadership_gained = Signal()  # leader, epoch: the epoch is raised; the predecessor's work is recovered next
leadership_lost = Signal()  # leader, epoch, reason: resigned, fenced, or without the database
