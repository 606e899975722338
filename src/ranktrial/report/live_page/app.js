// The live page: the report of the chosen trial, or a table of all trials, asked for again every few seconds.
"use strict";

const PAUSE = 3000;  // milliseconds between two reports, or longer where a report takes long to make
const KEY = "ranktrial-key";
const SPARE = 4;
let text = null;
let timer = null;
let asking = false;
let chosen = null;
let place = new AbortController();  // one for each address: leaving it ends what is asked for
const rows = new Map();  // what the overview says of each trial

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

function tell(message) {
  const notice = byId("notice");
  notice.hidden = message === "";
  if (notice.textContent !== message) notice.textContent = message;
}

const now = () => Date.now() / 1000;

async function update(signal) {
  const { trials, scopes } = JSON.parse(await ask("v1/trials", { signal }));
  const names = trials.map(trial => trial.name);
  const asked = decodeURIComponent(location.hash.slice(1));
  const before = chosen;
  chosen = names.includes(asked) ? asked : names.length === 1 ? names[0] : null;
  if (chosen !== before) scrollTo(0, 0);
  byId("key").hidden = true;
  byId("trials").hidden = names.length < 2 || chosen === null;
  byId("overview").hidden = names.length < 2 || chosen !== null;
  const missing = asked && asked !== chosen ? `There is no trial ${asked}.` : "";
  if (chosen === null) {
    text = null;
    byId("report").hidden = true;
    document.title = "Trials – ranktrial";
    tell(names.length === 0 ? "No trial yet. PUT /v1/trials/{name} starts one." : missing);
    if (names.length > 0) await showTrials(trials, signal);
  } else {
    const answer = await ask(address("report"), { signal });
    if (answer !== text) show(JSON.parse(answer), now());
    text = answer;
    showAges(now());
    byId("actions").hidden = false;
    byId("stop").hidden = byId("share").hidden = !scopes.includes("admin") || trials.find(trial => trial.name === chosen).stopped;
    tell(missing && `${missing} This is ${chosen}.`);
  }
  byId("state").textContent = `as of ${new Date().toLocaleTimeString("en-GB", { timeZone: "UTC" })} UTC`;
}

// All trials, those that run first; reports are asked for one after the other.
async function showTrials(trials, signal) {
  const sorted = [...trials].sort((one, two) => one.stopped - two.stopped);
  listTrials(sorted);
  for (const { name } of sorted) {
    rows.set(name, await ask(`v1/trials/${encodeURIComponent(name)}/report`, { signal }).then(JSON.parse, fault => {
      if (signal.aborted || fault instanceof KeyNeeded) throw fault;
      return { fault: `No report: ${fault.message}.` };
    }));
    listTrials(sorted);
  }
}

function listTrials(trials) {
  const seen = (trial, known) => rows.get(trial.name)?.text ? known(rows.get(trial.name)) : UNKNOWN;
  byId("list").replaceChildren(table(trials, {
    trial: t => make("a", { href: `#${encodeURIComponent(t.name)}` }, t.name),
    result: t => answer(rows.get(t.name) ?? {}),
    searches: t => [seen(t, r => count(r.impressions))],
    "last search": t => seen(t, r => ago(r.pace.latest, now())),
    state: t => standing(t.shows),
  }, "", true));
}

function answer({ text, pace, fault }) {
  return make("div", {}, text?.headline ?? fault ?? UNKNOWN, ...(pace?.warning ? [make("span", { class: "change warn" }, pace.warning)] : []));
}

async function turn() {
  if (asking || document.hidden) return;
  asking = true;
  clearTimeout(timer);
  const began = performance.now(), here = place;
  try {
    await update(here.signal);
  } catch (fault) {
    if (here === place && fault instanceof KeyNeeded) return askForKey(fault.message);
    if (here === place) tell(`No news: ${fault.message}. Trying again.`);
  } finally {
    asking = false;
  }
  timer = setTimeout(turn, here === place ? Math.max(PAUSE, SPARE * (performance.now() - began)) : 0);
}

function askForKey(why) {
  text = null;  // the same report must be shown again
  byId("key").hidden = false;
  byId("report").hidden = byId("overview").hidden = true;
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
  const { names, decision } = latest, best = decision.winner ?? "A";
  byId("stop-title").textContent = `Stop ${chosen}?`;
  byId("stop-shows").replaceChildren(byId("stop-shows").firstElementChild, ...names.map(({ letter, label }) =>
    make("label", {}, make("input", { type: "radio", name: "show", value: letter, ...(letter === best ? { checked: "" } : {}) }), ` ${label}`)));
  byId("stop-reason").value = "";
  byId("stop-dialog").dataset.trial = chosen;
  tellStop();
  byId("stop-dialog").showModal();
});
byId("stop-shows").addEventListener("change", tellStop);

const toShow = () => byId("stop-shows").querySelector(":checked").value;

function tellStop() {
  const { names, decision } = latest, shown = toShow(), [a, b] = names;
  const chosenOne = shown === "A" ? a : b;
  const why = decision.winner === null ? "No winner is named." : `${decision.winner === "A" ? a.label : b.label} gets more clicks.`;
  byId("stop-text").textContent = `${why} Everybody gets the list of ${chosenOne.label} from now on, and nothing is mixed or drawn any more. ` +
    "Clicks on earlier searches still count, and the report stays. A stopped trial cannot be started again.";
  byId("stop-confirm").textContent = `Stop and show ${shown}`;
}

byId("stop-cancel").addEventListener("click", () => byId("stop-dialog").close());
byId("stop-confirm").addEventListener("click", () =>
  post("stop", { reason: byId("stop-reason").value.trim(), show: toShow() }, "Not stopped"));

// Sends what a dialog asks for, of the trial that it was about, whatever is shown by now.
async function post(what, body, failed) {
  const dialog = byId(`${what}-dialog`), { trial } = dialog.dataset;
  dialog.close();
  try {
    await ask(`v1/trials/${encodeURIComponent(trial)}/${what}`,
      { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    turn();
  } catch (fault) {
    tell(`${failed}: ${fault.message}.`);
  }
}

// --- the share of visitors who take part ---------------------------------------------------------------------------------------

byId("share").addEventListener("click", () => {
  const { config: { share } } = latest.parts.find(part => part.version === latest.version);
  byId("share-title").textContent = `Who takes part in ${chosen}?`;
  byId("share-number").value = Number((100 * share).toPrecision(6));
  byId("share-reason").value = "";
  byId("share-dialog").dataset.trial = chosen;
  byId("share-dialog").dataset.share = share;
  tellShare();
  byId("share-dialog").showModal();
});
byId("share-number").addEventListener("input", tellShare);
byId("share-cancel").addEventListener("click", () => byId("share-dialog").close());
byId("share-form").addEventListener("submit", event => {
  event.preventDefault();
  post("share", { share: byId("share-number").valueAsNumber / 100, reason: byId("share-reason").value.trim() }, "The share stays as it was");
});

function tellShare() {
  const before = 100 * byId("share-dialog").dataset.share, after = byId("share-number").valueAsNumber, { names: [a] } = latest;
  const who = after > before ? "All who take part now stay in, and more come in." :
    after < before ? "Some who take part now leave; their searches so far still count." : "That is the share now.";
  byId("share-text").textContent = `${who} Everybody else sees the list of ${a.label}, and nothing of that is kept.`;
  byId("share-confirm").disabled = !(after >= 0 && after <= 100) || after === before;
}

// --- keys ------------------------------------------------------------------------------------------------------------------

byId("key").addEventListener("submit", event => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("key-text").value);
  byId("key-text").value = "";
  turn();
});
addEventListener("hashchange", () => {
  place.abort();
  place = new AbortController();
  turn();
});
document.addEventListener("visibilitychange", turn);
turn();
