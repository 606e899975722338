/** The client in Node, against servers that answer well, badly, late or not at all. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { test } from "node:test";

import * as ranktrial from "../ranktrial.js";

const { createClient } = ranktrial;
const NOBODY = "http://127.0.0.1:9";
const PATIENT = 60_000; // milliseconds: tests must not depend on how busy the machine is
const SEARCH = { query: "q", a: ["x", "y", "x", 3], b: ["y"] };

/** A server on a free port for one test. `answer(request, body, response)` sees every request. */
async function serve(t, answer) {
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    answer(request, body, response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

const json = (response, status, content, headers = {}) =>
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(content));

/** A service that gives these answers in turn to batches of events, then takes them. */
async function scripted(t, ...script) {
  const batches = [];
  const requests = [];
  const url = await serve(t, (request, body, response) => {
    requests.push(request);
    const said = script.shift();
    if (said === "hang up") return request.socket.destroy();
    if (said) return json(response, said, { detail: "said so" });
    batches.push(JSON.parse(body));
    return json(response, 200, { results: [], counts: { counted: JSON.parse(body).length } });
  });
  return { url, batches, requests };
}

test("rank asks for what to show", async (t) => {
  const shown = { id: "i", ranking: ["y", "x"], fallback: null };
  let asked;
  const url = await serve(t, (request, body, response) => {
    asked = [request.method, request.url, request.headers.authorization, JSON.parse(body)];
    json(response, 200, shown);
  });
  const client = createClient(`${url}/`, { key: "rt_1", timeout: PATIENT });
  assert.deepEqual(await client.rank("röd/1", { ...SEARCH, unit: "u", size: 2 }), shown);
  assert.deepEqual(asked, ["POST", "/v1/trials/r%C3%B6d%2F1/rank", "Bearer rt_1", { ...SEARCH, unit: "u", size: 2 }]);
});

test("rank gives A's list where nobody answers", async () => {
  const client = createClient(NOBODY, { timeout: PATIENT });
  assert.deepEqual(await client.rank("t", SEARCH), { id: "", ranking: ["x", "y", "3"], fallback: "no answer" });
  assert.deepEqual((await client.rank("t", { ...SEARCH, offset: 1, size: 1 })).ranking, ["y"]);
  assert.deepEqual((await client.rank("t", { ...SEARCH, a: null })).ranking, []);
  client.click("", "x"); // of a list that was not drawn: there is nothing to count
  assert.equal(await client.flush(), true);
});

for (const [what, answer, fallback] of [
  ["nothing", () => {}, "time-out"],
  ["a body that never ends", (_, __, response) => response.writeHead(200).write('{"id": '), "time-out"],
]) {
  test(`rank gives A's list in time where ${what} comes`, async (t) => {
    const client = createClient(await serve(t, answer), { timeout: 50 });
    assert.deepEqual(await client.rank("t", SEARCH), { id: "", ranking: ["x", "y", "3"], fallback });
  });
}

for (const [what, answer, fallback] of [
  ["an error", (_, __, response) => json(response, 503, {}), "answered 503"],
  ["an error page", (_, __, response) => response.writeHead(502).end("<html>"), "answered 502"],
  ["something else", (_, __, response) => json(response, 200, { id: "i" }), "answered 200"],
  ["a cut off answer", (_, __, response) => response.writeHead(200).end("{"), "no answer"],
  ["a reset connection", (request) => request.socket.destroy(), "no answer"],
]) {
  test(`rank gives A's list where ${what} comes`, async (t) => {
    const client = createClient(await serve(t, answer), { timeout: PATIENT });
    assert.deepEqual(await client.rank("t", SEARCH), { id: "", ranking: ["x", "y", "3"], fallback });
  });
}

test("events go in batches, with the time of the click", async (t) => {
  const { url, batches, requests } = await scripted(t);
  const client = createClient(url, { key: "rt_1", every: PATIENT });
  for (let event = 0; event < 700; event++) client.click("i", event, 1);
  client.seen("i", ["x", "y"]);
  client.send({ action_name: "click" });
  assert.equal(requests.length, 0); // they wait for each other
  assert.equal(await client.flush(), true);
  assert.deepEqual(batches.map((batch) => batch.length).sort(), [202, 500]);
  const [click] = batches.find((batch) => batch.length === 500);
  assert.deepEqual({ ...click, time: 0 }, { id: "i", document: 0, position: 1, time: 0 });
  assert.ok(Math.abs(click.time - Date.now() / 1000) < 3600);
  assert.deepEqual([requests[0].url, requests[0].headers.authorization], ["/v1/events", "Bearer rt_1"]);
  assert.deepEqual(client.counts, { lost: 0, counted: 702 });
});

test("orders go with their values, exactly", async (t) => {
  const { url, batches } = await scripted(t, 503);
  const client = createClient(url, { every: PATIENT });
  client.event("i", "x", "cart");
  client.event("i", "x", "order", 39.9, "4711");
  client.event("i", "x", "order", "-39.90", "4711-back");
  client.event("i", "y", "order", 12345678901234567890n);
  client.event("i", "y", "order", 0);
  client.event("", "x", "order", 1); // of a list that was not drawn
  assert.equal(await client.flush(), false);
  assert.equal(await client.flush(), true); // sent again, as clicks are
  assert.ok(batches[0].every(({ time }) => Math.abs(time - Date.now() / 1000) < 3600));
  assert.deepEqual(
    batches[0].map(({ time, ...event }) => event),
    [
      { id: "i", document: "x", action: "cart" },
      { id: "i", document: "x", action: "order", value: "39.9", event_id: "4711" },
      { id: "i", document: "x", action: "order", value: "-39.90", event_id: "4711-back" },
      { id: "i", document: "y", action: "order", value: "12345678901234567890" },
      { id: "i", document: "y", action: "order", value: "0" },
    ],
  );
});

test("events are sent by themselves", async (t) => {
  const { url, batches } = await scripted(t);
  const client = createClient(url, { every: 1 });
  client.click("i", "x");
  while (!batches.length) await new Promise((resolve) => setTimeout(resolve, 1));
  assert.equal(batches[0][0].document, "x");
});

for (const fault of ["hang up", 500, 503, 429, 401, 408]) {
  test(`events are sent again after ${fault}`, async (t) => {
    const { url, batches } = await scripted(t, fault, fault);
    const client = createClient(url, { every: PATIENT });
    client.click("i", "x");
    assert.equal(await client.flush(), false);
    client.click("i", "y");
    assert.equal(await client.flush(), false);
    assert.equal(await client.flush(), true);
    assert.deepEqual(batches.map((batch) => batch.map((event) => event.document)), [["x", "y"]]);
    assert.deepEqual(client.counts, { lost: 0, counted: 2 });
  });
}

test("events are sent again by themselves", async (t) => {
  const { url, batches } = await scripted(t, 500, "hang up");
  const client = createClient(url, { every: 1 });
  client.click("i", "x");
  while (!batches.length) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.equal(batches[0][0].document, "x");
});

for (const status of [400, 403, 404, 413, 422]) {
  test(`events that are refused with ${status} do not hold up others`, async (t) => {
    t.mock.method(console, "error", () => {});
    const { url, batches } = await scripted(t, status);
    const client = createClient(url, { every: PATIENT });
    client.send({ nonsense: true });
    assert.equal(await client.flush(), true);
    client.click("i", "x");
    await client.flush();
    assert.deepEqual(client.counts, { lost: 1, counted: 1 });
    assert.equal(batches.length, 1);
    assert.match(String(console.error.mock.calls[0].arguments), new RegExp(`ranktrial,${status}.*said so`));
  });
}

test("one bad event does not take the others with it", async (t) => {
  t.mock.method(console, "error", () => {});
  const url = await serve(t, (_, body, response) =>
    body.includes("bad") ? json(response, 400, { detail: "said so" }) : json(response, 200, { counts: { counted: JSON.parse(body).length } }),
  );
  const client = createClient(url, { every: PATIENT });
  for (const document of ["x", "bad", "y"]) client.click("i", document);
  assert.equal(await client.flush(), true);
  assert.deepEqual(client.counts, { lost: 1, counted: 2 });
});

test("what waits is bounded", async (t) => {
  const { url } = await scripted(t);
  const client = createClient(url, { every: PATIENT, capacity: 2 });
  for (const document of ["x", "y", "z"]) client.click("i", document);
  await client.flush();
  assert.deepEqual(client.counts, { lost: 1, counted: 2 });
});

test("a beacon goes at once, as text and without a clock", async (t) => {
  const { url, batches, requests } = await scripted(t);
  const client = createClient(url, { beacon: true });
  client.click("i", "x", 2);
  client.event("i", "x", "cart");
  await client.flush();
  const sent = batches.flat().sort((x, y) => ("action" in x) - ("action" in y));
  assert.deepEqual(sent, [{ id: "i", document: "x", position: 2 }, { id: "i", document: "x", action: "cart" }]);
  assert.deepEqual([requests[0].url, requests[0].headers["content-type"]], ["/v1/beacon", "text/plain;charset=UTF-8"]);
});

test("what cannot be is refused when a client is made", () => {
  assert.throws(() => createClient("trials.example.com"), /Invalid URL/);
  assert.throws(() => createClient(NOBODY, { beacon: true, key: "rt_1" }), /must not hold a key/);
});

test("the types name all that there is, and no more", () => {
  const types = readFileSync(new URL("../ranktrial.d.ts", import.meta.url), "utf8");
  const functions = [...types.matchAll(/^export function (\w+)/gm)].map((match) => match[1]);
  assert.deepEqual(functions.sort(), Object.keys(ranktrial).sort());
  const members = types.match(/interface Client \{([^]*?)\n\}/)[1].matchAll(/^ {2}(?:readonly )?(\w+)[(:]/gm);
  assert.deepEqual([...members].map((match) => match[1]).sort(), Object.keys(createClient(NOBODY)).sort());
});

test("it stays small", () => {
  const source = readFileSync(new URL("../ranktrial.js", import.meta.url), "utf8");
  const bare = source.replace(/\/\*\*[^]*?\*\/|\/\/ .*$|^\s+/gm, "");
  assert.ok(bare.length < 4_900, `${bare.length} characters: minify it and see that it is below 3,000 bytes`);
});
