// The live page: which trials there are, and the report of the chosen one, asked for again every few seconds.
"use strict";

const PAUSE = 3000;  // milliseconds between two reports, or longer where a report takes long to make
const KEY = "ranktrial-key";
const SPARE = 4;
let text = null;
let timer = null;
let asking = false;

class KeyNeeded extends Error {}

async function ask(path) {
  const key = sessionStorage.getItem(KEY);
  // With no-cache the browser sends the ETag it knows: an unchanged report is not sent again.
  const answer = await fetch(path, { cache: "no-cache", headers: key ? { Authorization: `Bearer ${key}` } : {} });
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    const told = problem.detail ?? problem.title ?? `the service answered ${answer.status}`;
    throw answer.status === 401 || (answer.status === 403 && key) ? new KeyNeeded(told) : new Error(told);
  }
  return answer.text();
}

function listTrials(trials, chosen) {
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
  const { trials } = JSON.parse(await ask("v1/trials"));
  const names = trials.map(trial => trial.name);
  const asked = decodeURIComponent(location.hash.slice(1));
  const chosen = names.includes(asked) ? asked : names[0];
  byId("key").hidden = true;
  listTrials(trials, chosen);
  if (chosen === undefined) {
    byId("report").hidden = true;
    return tell("No trial yet. PUT /v1/trials/{name} starts one.");
  }
  const answer = await ask(`v1/trials/${encodeURIComponent(chosen)}/report`);
  if (answer !== text) show(JSON.parse(answer));
  text = answer;
  tell(asked && asked !== chosen ? `There is no trial ${asked}; this is ${chosen}.` : "");
  byId("state").textContent = `as of ${new Date().toLocaleTimeString("en-GB")}`;
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

byId("key").addEventListener("submit", event => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("key-text").value);
  byId("key-text").value = "";
  turn();
});
addEventListener("hashchange", turn);
document.addEventListener("visibilitychange", turn);
turn();
