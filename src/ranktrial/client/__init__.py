"""Client of the HTTP service, for search pages in Python: standard library only, and nothing else of this package is loaded.

What stands in the way of a page never raises and never waits for long: ``rank`` gives A's list on any fault, clicks are sent in
the background. One client serves all threads of a process.

    from ranktrial.client import Client

    client = Client("http://127.0.0.1:8000", key="rt_...")
    shown = client.rank("shoes", "red shoes", a=["sku-1", "sku-2"], b=["sku-2", "sku-3"], unit="session-17")
    client.click(shown.id, shown.ranking[0], position=1)
    client.event(shown.id, shown.ranking[0], "order", "39.90", event_id="4711")
"""

from ranktrial.client.client import Client, Shown

__all__ = ["Client", "Shown"]
