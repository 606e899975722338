/**
 * A search page in Node. The server asks what to show; the page itself sends clicks, which survive navigation.
 *
 *     python examples/run.py node
 *
 * All that belongs to the trial is marked.
 */

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

import { createClient } from "../clients/js/ranktrial.js"; // the trial; with npm: from "ranktrial"

const PORT = +(process.env.PORT ?? 8080);
const SERVICE = process.env.RANKTRIAL_URL ?? "http://127.0.0.1:8000"; // the trial
const SCRIPT = readFileSync(new URL("../clients/js/ranktrial.js", import.meta.url)); // the trial
const ITEMS = JSON.parse(readFileSync(new URL("catalogue.json", import.meta.url)));
const BY_ID = new Map(ITEMS.map((item) => [item.id, item]));
const client = createClient(SERVICE, { key: process.env.RANKTRIAL_KEY }); // the trial

function matches(query) {
  const words = new Set(query.toLowerCase().split(/\s+/));
  const count = (texts) => texts.filter((text) => words.has(text)).length;
  const scored = ITEMS.map((item) => ({ ...item, score: count(item.tags) + 2 * count(item.title.toLowerCase().split(" ")) }));
  return scored.filter((item) => item.score);
}
const ranked = (query, by) => matches(query).sort((one, other) => other[by] - one[by]).map((item) => item.id);
const escaped = (text) => text.replace(/[&<>"']/g, (mark) => `&#${mark.charCodeAt()};`);

async function searchPage(query, session) {
  let results = "";
  if (query.trim()) {
    const lists = { a: ranked(query, "score"), b: ranked(query, "sold") };
    const shown = await client.rank("shop-search", { query, ...lists, unit: session, size: 5 }); // the trial
    const rows = shown.ranking.map((id) => {
      const { title, price } = BY_ID.get(id);
      return `<li data-document="${id}"><a href="/item/${id}">${escaped(title)}</a> ${price.toFixed(2)}`; // data-document: the trial
    });
    results = `<ol data-impression="${shown.id}">${rows.join("")}</ol>`; // data-impression: the trial
  }
  return `<!doctype html><link rel=icon href=data:,><title>Shop</title>
    <form><input name=q value="${escaped(query)}" autofocus> <button>Search</button></form>${results}
    <script type="module">import { track } from "/ranktrial.js"; track("${SERVICE}");</script>`; // the trial
}

const server = createServer(async (request, response) => {
  const { pathname, searchParams } = new URL(request.url, "http://shop");
  const answer = (content, status = 200, type = "text/html; charset=utf-8") => response.writeHead(status, { "content-type": type }).end(content);
  if (pathname === "/ranktrial.js") return answer(SCRIPT, 200, "text/javascript"); // the trial
  const item = BY_ID.get(pathname.replace("/item/", ""));
  if (item) return answer(`<!doctype html><link rel=icon href=data:,><title>${escaped(item.title)}</title><h1>${escaped(item.title)}</h1><p><a href="/">Search</a>`);
  if (pathname !== "/") return answer("there is no such page", 404);
  const session = /session=([\w-]+)/.exec(request.headers.cookie ?? "")?.[1] ?? randomUUID();
  response.setHeader("set-cookie", `session=${session}; Max-Age=86400; HttpOnly; SameSite=Lax`);
  return answer(await searchPage(searchParams.get("q") ?? "", session));
});
server.listen(PORT, "127.0.0.1", () => console.log(`search page: http://127.0.0.1:${server.address().port}/`));
