"""Programs that serve a whole cluster: the scheduler extender, the DRA driver, tasks of the chart."""
