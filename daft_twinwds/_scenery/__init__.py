"""Landscapes for test data: painted by arithmetic, and told in words that are true of them.

Colours are packed into one 32-bit word per pixel, so that a layer of a 4K picture is one addition.
Glow, clouds and the lie of the land change slowly: they are worked out small and enlarged. Lengths
are shares of the picture's height, so that a scene is as coarse or fine as its picture.
"""
