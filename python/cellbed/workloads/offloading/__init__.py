"""The programs of all kinds that offload over MQTT."""
