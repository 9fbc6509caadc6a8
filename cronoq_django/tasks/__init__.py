"""What user code touches: the decorators, the Task class, enqueue, the context of a running task, results."""
