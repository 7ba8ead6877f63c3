"""The default scheduler as a model: filters, scores, the choice among them, the queue, preemption.

Source: kube-scheduler v1.37.1 with its default plugins and weights.
"""
