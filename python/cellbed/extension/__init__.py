"""The interface of cellbed for siblings: distributions that add verbs, publications, kinds of files and of trials.

A sibling imports these modules, the library (`cellbed`, `cellbed.path`) and nothing else of cellbed. It registers its
additions as entry points of the groups ``cellbed.verbs``, ``cellbed.publications``, ``cellbed.files`` and
``cellbed.trials``.
"""
