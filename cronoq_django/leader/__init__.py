"""The leader: the one process that turns time into runs.

`election` finds out who leads, `fence` lets only that one write, `recovery` comes first, then `loop` goes round the
`stages`.
"""
