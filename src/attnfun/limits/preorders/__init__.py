"""Is a preference a preorder, is it continuous, and which utility does attention need for it?"""
