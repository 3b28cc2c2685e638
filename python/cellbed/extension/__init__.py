"""The face of cellbed for its siblings, distributions that add verbs, kinds of files and kinds of trials.

A sibling imports these modules, `cellbed` and nothing else of it. It registers what it adds as entry points of the
groups ``cellbed.verbs``, ``cellbed.files`` and ``cellbed.trials``.
"""
