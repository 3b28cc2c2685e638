"""Load over HTTP: requests, their connections and journeys."""
