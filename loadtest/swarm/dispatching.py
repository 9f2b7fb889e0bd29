"""How Locust's master places users on workers, so that every process has the same share of the load at every moment."""

from collections.abc import Iterator
from itertools import cycle
from typing import TYPE_CHECKING

from locust.dispatch import UsersDispatcher

if TYPE_CHECKING:
    from locust.runners import WorkerNode

UsersOnWorkers = dict[str, dict[str, int]]  # by worker and user class


class EvenDispatcher(UsersDispatcher):
    """Places each new user on the worker with the fewest, among those on the one with the fewest of its class.

    Locust deals them out in turn. Callers of two classes then lie on a worker each, and callers that leave take from
    the last workers what later callers do not bring back: after a few spikes one of two workers has all of them.
    Users leave in the reverse order in which they came, so what is left was even before.
    """

    def _add_users_on_workers(self) -> UsersOnWorkers:
        wanted = min(self._current_user_count + self._user_count_per_dispatch_iteration, self._target_user_count)
        added = self._place(self._user_generator, wanted - self._current_user_count, self._users_on_workers)
        self._no_user_to_spawn = len(added) < wanted - self._current_user_count
        self._current_user_count += len(added)
        self._active_users += added
        return self._users_on_workers

    def _distribute_users(
        self, target_user_count: int
    ) -> "tuple[UsersOnWorkers, Iterator[str | None], cycle[WorkerNode], list[tuple[WorkerNode, str]]]":
        """All users anew, as if none had been placed: what Locust asks for when a worker came or went."""
        classes = [user_class.__name__ for user_class in self._original_user_classes]
        empty: UsersOnWorkers = {worker.id: dict.fromkeys(classes, 0) for worker in self._worker_nodes}
        users = self._user_gen()
        return empty, users, cycle(self._worker_nodes), self._place(users, target_user_count, empty)

    def _place(
        self, users: Iterator[str | None], count: int, on_workers: UsersOnWorkers
    ) -> "list[tuple[WorkerNode, str]]":
        """Place the next `count` users, fewer where there are no more; who was placed where, in order."""
        total = {worker.id: sum(on_workers[worker.id].values()) for worker in self._worker_nodes}
        placed: list[tuple[WorkerNode, str]] = []
        while len(placed) < count and (user := next(users)) is not None:
            of_class = {worker.id: on_workers[worker.id][user] for worker in self._worker_nodes}
            worker = min(self._worker_nodes, key=lambda each: (total[each.id], of_class[each.id]))
            on_workers[worker.id][user] += 1
            total[worker.id] += 1
            placed.append((worker, user))
        return placed
