"""The store in a PostgreSQL database, for any number of instances on any number of machines.

* One transaction for all that waits in a process (group commit), each table by one ``insert ... select from unnest(...) on
  conflict do nothing``; acknowledged after the commit. Rows are sorted by their keys, so that instances do not deadlock.
* A commit whose answer got lost is looked up by its transaction's number after reconnecting: nothing is written twice, not
  even a tally.
* Impressions, clicks and events are partitioned by the month of the impression. What makes an impression unique has a
  table of its own, ``impression_keys``, because an index of a partitioned table holds only within a partition.
* Ids grow, but transactions do not end in the order in which they drew theirs. Each one therefore holds an advisory lock that
  names the last id before its own, and nobody reads beyond the lowest of these: no reader misses a row that appears later.
* Every call has a time limit of ours, whatever the server or the network does.
"""

from ranktrial.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
