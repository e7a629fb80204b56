"""Chains A H W: forward and backward of the products, their end, dropout and losses."""
