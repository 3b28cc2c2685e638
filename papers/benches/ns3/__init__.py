"""ns-3's LTE module as an independent reference: a network in virtual time that others wrote.

``scenarios`` draws descriptions, ``simulation`` runs one, ``reference`` makes it a network of the evaluation. Needs the
Debian packages libns3-dev and g++.
"""
