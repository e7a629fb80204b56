"""What products and exchanges cost, from sizes alone: process grid, pair tables, schedule, machines, seconds.

Imports neither torch nor a communicator.
"""
