"""The shop: items, carts and orders.

A cart survives the login and becomes one order. Stock is never oversold. Rows and pages of items are cached
(`plaza.caching`), and a change of an item is visible at once.
"""
