"""Telling the others: events from the log to JetStream (relay) and to everybody in the house (feed), work to whoever is free.

Postgres is the truth and decides; NATS makes it fast. So NATS may be away, lose its newest messages or be wiped: whoever
follows reads the log meanwhile, and nothing is lost. Nothing in here knows what an event means.
"""
