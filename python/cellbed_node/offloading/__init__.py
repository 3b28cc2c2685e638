"""Tasks that endpoints send to a service: over MQTT, through a broker."""
