"""Pure decisions of the scheduler: values in, values out, no clock and no I/O."""
