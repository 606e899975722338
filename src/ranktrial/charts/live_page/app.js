// The live page: which trials there are, and the report of the chosen one, asked for again every few seconds.
"use strict";

const PAUSE = 3000;  // milliseconds between two reports, or longer where a report takes long to make
const KEY = "ranktrial-key";
const SPARE = 4;
let text = null;
let timer = null;
let asking = false;
let chosen;

class KeyNeeded extends Error {}

const address = what => `v1/trials/${encodeURIComponent(chosen)}/${what}`;

async function ask(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  // With no-cache the browser sends the ETag it knows: an unchanged report is not sent again.
  // The key goes along as a header of its own, never as a cookie: no other site can make this browser send it.
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const answer = await fetch(path, { cache: "no-cache", credentials: "omit", ...options, headers });
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    const told = problem.detail ?? problem.title ?? `the service answered ${answer.status}`;
    throw answer.status === 401 || (answer.status === 403 && key) ? new KeyNeeded(told) : new Error(told);
  }
  return answer.text();
}

function listTrials(trials) {
  byId("trials").replaceChildren(...trials.map(({ name, stopped }) =>
    make("a", { href: `#${encodeURIComponent(name)}`, ...(name === chosen ? { "aria-current": "page" } : {}) },
      stopped ? `${name} (stopped)` : name)));
}

function tell(message) {
  const notice = byId("notice");
  notice.hidden = message === "";
  if (notice.textContent !== message) notice.textContent = message;
}

async function update() {
  const { trials, scopes } = JSON.parse(await ask("v1/trials"));
  const names = trials.map(trial => trial.name);
  const asked = decodeURIComponent(location.hash.slice(1));
  chosen = names.includes(asked) ? asked : names[0];
  byId("key").hidden = true;
  listTrials(trials);
  if (chosen === undefined) {
    byId("report").hidden = true;
    return tell("No trial yet. PUT /v1/trials/{name} starts one.");
  }
  const answer = await ask(address("report"));
  if (answer !== text) show(JSON.parse(answer));
  text = answer;
  byId("actions").hidden = false;
  byId("stop").hidden = !scopes.includes("admin") || trials.find(trial => trial.name === chosen).stopped;
  tell(asked && asked !== chosen ? `There is no trial ${asked}; this is ${chosen}.` : "");
  byId("state").textContent = `as of ${new Date().toLocaleTimeString("en-GB", { timeZone: "UTC" })} UTC`;
}

async function turn() {
  if (asking || document.hidden) return;
  asking = true;
  clearTimeout(timer);
  const began = performance.now();
  try {
    await update();
  } catch (fault) {
    if (fault instanceof KeyNeeded) return askForKey(fault.message);
    tell(`No news: ${fault.message}. Trying again.`);
  } finally {
    asking = false;
  }
  timer = setTimeout(turn, Math.max(PAUSE, SPARE * (performance.now() - began)));
}

function askForKey(why) {
  text = null;  // the same report must be shown again
  byId("key").hidden = false;
  byId("report").hidden = true;
  tell(sessionStorage.getItem(KEY) ? `Not with that key: ${why}.` : "");
  byId("key-text").focus();
}

// --- files -----------------------------------------------------------------------------------------------------------------

async function download(file) {
  const content = await ask(address(file));
  const name = `${chosen.replace(/[^\w.-]+/g, "-")}-${file.includes(".") ? file : `${file}.json`}`;
  const link = make("a", { href: URL.createObjectURL(new Blob([content])), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

for (const button of document.querySelectorAll("[data-file]"))
  button.addEventListener("click", () => download(button.dataset.file).catch(fault => tell(`No file: ${fault.message}.`)));

// --- the end of a trial ------------------------------------------------------------------------------------------------------

byId("stop").addEventListener("click", () => {
  const [a] = latest.names;
  byId("stop-title").textContent = `Stop ${chosen}?`;
  byId("stop-text").textContent = `From now on everybody gets ${a.label}. Clicks on what was shown still count, and the report stays. ` +
    "A stopped trial cannot be started again.";
  byId("stop-reason").value = "";
  byId("stop-dialog").dataset.trial = chosen;
  byId("stop-dialog").showModal();
});
byId("stop-cancel").addEventListener("click", () => byId("stop-dialog").close());
byId("stop-confirm").addEventListener("click", async () => {
  const { trial } = byId("stop-dialog").dataset;  // the one that was asked about, whatever is shown by now
  byId("stop-dialog").close();
  const body = JSON.stringify({ reason: byId("stop-reason").value.trim() });
  try {
    await ask(`v1/trials/${encodeURIComponent(trial)}/stop`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
    turn();
  } catch (fault) {
    tell(`Not stopped: ${fault.message}.`);
  }
});

// --- keys ------------------------------------------------------------------------------------------------------------------

byId("key").addEventListener("submit", event => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("key-text").value);
  byId("key-text").value = "";
  turn();
});
addEventListener("hashchange", turn);
document.addEventListener("visibilitychange", turn);
turn();
