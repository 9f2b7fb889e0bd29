"""Callers, each module a process of its own: they import Locust, which patches the process."""
