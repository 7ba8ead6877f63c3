"""What pods of the Helm chart do beside Mooring's programs.

Images have no shell, so that these tasks are functions of Mooring: ``mooring deploy TASK``.
"""
