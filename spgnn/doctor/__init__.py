"""Checks of an installation, and the measurements that a machine file is made of."""
