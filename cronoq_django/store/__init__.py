"""The store: every statement that is hot or fenced, and the operations that leader, workers, admin and commands share.

The rule: people's edits and reading go through the ORM; claims, completions, ticks and all fenced writes go through
here, as statements in `sql/`, one a file. What only a leader may do takes a `FencedTransaction`.
"""
