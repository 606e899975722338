/** Client of the ranktrial service, for browsers and Node; ranktrial.d.ts describes every name. */

const { stringify } = JSON;

export function createClient(url, { key, beacon, timeout = 500, every = beacon ? 0 : 1000, capacity = 10_000 } = {}) {
  if (key && beacon) throw Error("a page must not hold a key");
  const base = new URL(url, globalThis.location?.href).href.replace(/\/$/, "") + "/v1/";
  const target = base + (beacon ? "beacon" : "events");
  // Plain text is what a browser sends to other sites without asking them first, which a page that is left has no time for.
  const headers = beacon ? {} : { "content-type": "application/json" };
  if (key) headers.authorization = "Bearer " + key;
  const counts = { lost: 0 };
  const queue = [];
  const underWay = new Set();
  let timer;
  let tries = 0;

  const count = (what, number) => (counts[what] = (counts[what] || 0) + number);

  const post = (address, body, milliseconds) =>
    fetch(address, {
      method: "POST",
      headers,
      body,
      // A page that is left has no timers, and may have 64 KiB under way.
      ...(beacon ? { keepalive: body.length < 60_000, credentials: "omit" } : { signal: AbortSignal.timeout(milliseconds) }),
    });

  const all = async (dealt) => (await Promise.all(dealt)).every(Boolean);

  const later = (milliseconds) => {
    timer ??= setTimeout(flush, milliseconds);
    if (tries > 4) timer.unref?.(); // no reason for Node to run for ever
  };

  /** Sends a batch; whether it is dealt with. Otherwise it waits to be sent again. */
  const store = async (batch) => {
    let pause = 0;
    try {
      const body = stringify(batch);
      if (beacon && !("keepalive" in Request.prototype) && navigator.sendBeacon(target, body)) return true;
      const answer = await post(target, body, 15_000);
      const { status } = answer;
      if (answer.ok) {
        tries = 0;
        const { counts: found } = await answer.json();
        for (const outcome in found) count(outcome, found[outcome]);
        return true;
      }
      // The same would be refused again, but for a key that is not known yet and a service that is busy.
      if (status < 500 && ![401, 408, 429].includes(status)) {
        if (batch[1]) return all(batch.map((event) => store([event]))); // for the sake of the others
        console.error("ranktrial", status, await answer.text());
        count("lost", batch.length);
        return true;
      }
      pause = answer.headers.get("retry-after") * 1000;
    } catch {} // no answer
    queue.unshift(...batch);
    later(Math.min(30_000, Math.max(pause, 500 * 2 ** tries++ * (0.5 + Math.random() / 2))));
  };

  const deliver = () => {
    const done = store(queue.splice(0, beacon ? 50 : 500)).finally(() => underWay.delete(done));
    underWay.add(done);
  };

  const flush = async () => {
    clearTimeout(timer);
    timer = undefined;
    while (queue.length) deliver();
    return all(underWay);
  };

  const send = (event) => {
    if (queue.length >= capacity) count("lost", 1);
    else {
      queue.push(event);
      if (every || tries) later(every);
      else deliver(); // at once: the page may be gone in a moment
    }
  };

  const tell = (event) => event.id && send({ ...event, time: beacon ? undefined : Date.now() / 1000 });

  /** What still waits when a page is left is the browser's to send. */
  const leave = () => {
    while (queue.length) navigator.sendBeacon(target, stringify(queue.splice(0, 50)));
  };

  return {
    counts,
    send,
    flush,
    leave,
    click: (id, document, position) => tell({ id, document, position }),
    event: (id, document, action, value, event_id) => tell({ id, document, action, value: value?.toString(), event_id }),
    seen: (id, documents) => id && send({ id, seen: documents }),
    async rank(trial, search) {
      let fallback;
      try {
        const answer = await post(`${base}trials/${encodeURIComponent(trial)}/rank`, stringify(search), timeout);
        const shown = answer.ok && (await answer.json());
        if (shown.ranking?.map) return shown;
        fallback = "answered " + answer.status;
      } catch (problem) {
        fallback = problem.name == "TimeoutError" ? "time-out" : "no answer";
      }
      const { a, offset = 0, size } = search;
      const ranking = [...new Set(a?.map?.(String))];
      return { id: "", ranking: ranking.slice(offset, offset + (size ?? Infinity)), fallback };
    },
  };
}

const documentsOf = (list) => [...new Set([...list.querySelectorAll("[data-document]")].map((result) => result.dataset.document))];

export function mark(list, { id, ranking }, offset) {
  list.dataset.impression = id;
  if (offset) list.dataset.offset = offset;
  else delete list.dataset.offset;
  [...list.children].slice(0, ranking.length).forEach((result, at) => (result.dataset.document = ranking[at]));
}

export function track(url, { root = document, seen = true } = {}) {
  const client = createClient(url, { beacon: true });
  const sent = new Set();
  const isNew = (key) => !sent.has(key) && sent.add(key);

  const clicked = ({ button, target }) => {
    const result = target.closest("[data-document]");
    const list = result?.closest("[data-impression]");
    if (!list || button > 1) return; // the middle button, 1, opens a result in another tab
    const { impression, offset } = list.dataset;
    const { document } = result.dataset;
    if (isNew(impression + " " + document)) client.click(impression, document, documentsOf(list).indexOf(document) + 1 + (+offset || 0));
  };
  for (const type of ["click", "auxclick"]) root.addEventListener(type, clicked, true);
  addEventListener("pagehide", client.leave);

  const look = () => {
    for (const list of root.querySelectorAll("[data-impression]:not([data-offset])")) {
      const documents = documentsOf(list);
      const { impression } = list.dataset;
      if (documents[0] && isNew(impression)) client.seen(impression, documents);
    }
  };
  if (seen) {
    new MutationObserver(look).observe(root, { subtree: true, childList: true, attributeFilter: ["data-impression"] });
    look();
  }
  return client;
}
