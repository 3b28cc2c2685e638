"""The face of cellbed for its siblings, distributions that add verbs and publications.

A sibling imports these modules, the library (`cellbed`, `cellbed.path`) and nothing else of it.
"""
