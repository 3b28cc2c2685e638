"""Migrations of running services: strategies, the channel of snapshots, and their schedule."""
