"""Workers: processes that claim runs under leases and execute them.

A `supervisor` keeps one or more children alive and renews their leases. In each `child`, one loop claims (`claimer`)
and writes outcomes (`completer`) on one session; threads execute (`executor`).
"""
