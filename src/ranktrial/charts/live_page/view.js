// Draws a trial's report (the JSON of ranktrial.live.Report) into index.html; the live page and the HTML report both use it.
// Queries come from strangers: text is only ever set as text, never as HTML.
"use strict";

const byId = id => document.getElementById(id);
const UNKNOWN = "–";

function make(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function draw(tag, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// --- numbers as people read them -------------------------------------------------------------------------------------------

const count = n => n == null ? UNKNOWN : Math.round(n).toLocaleString("en-GB");
const plain = x => x == null ? UNKNOWN : Math.abs(x) >= 1000 ? count(x) : Number(x.toPrecision(3)).toString().replace("-", "−");

function signed(x, decimals) {
  if (x == null) return UNKNOWN;
  const size = Math.abs(x).toFixed(decimals);
  return (Number(size) === 0 ? "" : x < 0 ? "−" : "+") + size;
}

// As many decimals as give the half-width of the interval two digits that count.
function decimalsFor([low, high]) {
  if (low == null || !(high > low)) return 4;
  return Math.min(Math.max(Math.ceil(-Math.log10((high - low) / 2)) + 1, 2), 8);
}

function niceTicks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

// --- charts ----------------------------------------------------------------------------------------------------------------

// Axes, grid and titles; `x` and `y` have low, high, ticks, text (of a tick) and title.
function axes(place, height, label, x, y) {
  const width = Math.max(place.clientWidth, 260), left = 62, right = 26, top = 24, bottom = 42;
  const across = v => left + (v - x.low) / (x.high - x.low) * (width - left - right);
  const up = v => height - bottom - (v - y.low) / (y.high - y.low) * (height - top - bottom);
  const svg = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const clip = `clip-${place.id}`;
  const area = { x: left, y: top, width: width - left - right, height: height - top - bottom };
  svg.append(draw("clipPath", { id: clip }, draw("rect", area)));
  for (const tick of y.ticks) {
    svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: up(tick), y2: up(tick) }));
    svg.append(draw("text", { x: left - 6, y: up(tick) + 4, "text-anchor": "end" }, y.text(tick)));
  }
  for (const tick of x.ticks)
    svg.append(draw("text", { x: across(tick), y: height - bottom + 18, "text-anchor": "middle" }, x.text(tick)));
  svg.append(draw("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, x.title));
  svg.append(draw("text", { x: 0, y: 12 }, y.title));
  const inside = draw("g", { "clip-path": `url(#${clip})` });
  svg.append(inside);
  place.replaceChildren(svg);
  return { svg, inside, across, up, area };
}

const path = points => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function drawBand(place, report, config) {
  const known = report.band.filter(point => point.low != null);
  const units = "units";
  if (known.length < 2) {
    place.replaceChildren(make("p", { class: "caption" }, `The first interval comes after 100 ${units} and 20 clicks, on lists that differ.`));
    byId("band-text").textContent = "";
    return;
  }
  const last = known.at(-1);
  const recent = known.filter(point => point.units >= last.units / 8);  // earlier ones are wider: they run off the top and bottom
  const low = Math.min(0, ...recent.map(p => p.low)), high = Math.max(0, ...recent.map(p => p.high));
  const pad = (high - low) * 0.06, decimals = decimalsFor([last.low, last.high]);
  const y = { low: low - pad, high: high + pad, ticks: niceTicks(low, high, 6), title: "clicks per impression, A − B" };
  const digits = Math.max(0, Math.ceil(-Math.log10(y.ticks[1] - y.ticks[0]) - 1e-9));
  const x = { low: 0, high: last.units, ticks: niceTicks(0, last.units, place.clientWidth < 500 ? 4 : 8), title: units };
  const label = `Estimated difference with its ${Math.round(100 * report.level)}% interval over ${units}: ${bandNow(last, decimals)}.`;
  const { svg, inside, across, up, area } = axes(place, 300, label, { ...x, text: count }, { ...y, text: v => signed(v, digits) });
  const line = of => known.map(point => [across(point.units), up(point[of])]);
  inside.append(draw("path", { class: "band", d: `${path([...line("high"), ...line("low").reverse()])}Z` }));
  for (const tick of y.ticks) inside.append(draw("line", { class: "grid", x1: area.x, x2: area.x + area.width, y1: up(tick), y2: up(tick) }));
  for (const edge of ["low", "high"]) inside.append(draw("path", { class: "edge", d: path(line(edge)) }));
  for (const limit of config.smallest ? [-config.smallest, config.smallest] : [])
    inside.append(draw("line", { class: "smallest", x1: area.x, x2: area.x + area.width, y1: up(limit), y2: up(limit) }));
  inside.append(draw("line", { class: "zero", x1: area.x, x2: area.x + area.width, y1: up(0), y2: up(0) }));
  inside.append(draw("path", { class: "line", d: path(line("delta")) }));
  const right = area.x + area.width;
  svg.append(draw("text", { class: "a", x: right, y: 12, "text-anchor": "end" }, "↑ A gets more"));
  svg.append(draw("text", { class: "b", x: right, y: area.y + area.height + 36, "text-anchor": "end" }, "↓ B gets more"));
  pointAt(svg, inside, area, known, across, point => {
    const shown = point ?? last;
    byId("band-text").textContent =
      `After ${count(shown.units)} ${units}: ${bandNow(shown, decimals)}. The ${Math.round(100 * report.level)}% interval holds however often ` +
      `one looks${config.smallest ? `; dashed: the smallest difference that matters, ${config.smallest}` : ""}.`;
  });
}

const bandNow = (point, decimals) =>
  `${signed(point.delta, decimals)}, ${signed(point.low, decimals)} to ${signed(point.high, decimals)}`;

// Tells the point nearest to the pointer, and null when it leaves.
function pointAt(svg, inside, area, points, across, tell) {
  const cursor = draw("line", { class: "cursor", y1: area.y, y2: area.y + area.height, visibility: "hidden" });
  inside.append(cursor);
  svg.addEventListener("pointermove", event => {
    const x = event.clientX - svg.getBoundingClientRect().left;
    const away = point => Math.abs(across(point.units) - x);
    const nearest = points.reduce((best, point) => away(point) < away(best) ? point : best);
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, across(nearest.units));
    cursor.setAttribute("visibility", "visible");
    tell(nearest);
  });
  svg.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); tell(null); });
  tell(null);
}

function drawTheta(place, { theta, standard_error: errors }) {
  const top = Math.max(1, ...theta.map((t, i) => t + 2 * errors[i]));
  const x = { low: 0.5, high: theta.length + 0.5, ticks: theta.map((_, i) => i + 1).filter(r => theta.length <= 12 || r % 5 === 0 || r === 1) };
  const y = { low: 0, high: top * 1.05, ticks: niceTicks(0, top, 5) };
  const { inside, across, up } = axes(place, 240, "Examination probability of each rank, relative to the first",
    { ...x, text: String, title: "rank" }, { ...y, text: plain, title: "examined, relative to rank 1" });
  const points = theta.map((t, i) => [across(i + 1), up(t)]);
  theta.forEach((t, i) => {
    const [low, high] = [t - 2 * errors[i], t + 2 * errors[i]];
    if (errors[i] > 0) inside.append(draw("line", { class: "line", x1: points[i][0], x2: points[i][0], y1: up(low), y2: up(high) }));
  });
  inside.append(draw("path", { class: "edge", d: path(points) }));
  for (const [cx, cy] of points) inside.append(draw("circle", { cx, cy, r: 4 }));
}

// --- tables ----------------------------------------------------------------------------------------------------------------

// `columns` maps a heading to what is in a cell: text, or [text] for a number, or an element.
function table(rows, columns, caption) {
  const names = Object.keys(columns);
  const head = names.map(name => make("th", Array.isArray(rows[0] && columns[name](rows[0])) ? { scope: "col", class: "number" } : { scope: "col" }, name));
  const body = rows.map(row => make("tr", {}, ...names.map(name => cell(columns[name](row)))));
  const parts = [make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)];
  return make("table", {}, ...(caption ? [make("caption", {}, caption)] : []), ...parts);
}

function cell(value) {
  if (Array.isArray(value)) return make("td", { class: "number" }, ...value);
  return value instanceof Element ? make("td", { class: "bar" }, value) : make("td", {}, value);
}

function contributionBar(value, largest) {
  const size = largest > 0 ? 50 * Math.abs(value) / largest : 0;
  return draw("svg", { "aria-hidden": "true" },
    draw("rect", { class: value < 0 ? "b" : "a", x: `${value < 0 ? 50 - size : 50}%`, width: `${size}%`, y: 2, height: 12 }),
    draw("line", { class: "zero", x1: "50%", x2: "50%", y1: 0, y2: 16 }));
}

// --- the whole page --------------------------------------------------------------------------------------------------------

const STATUS = { fail: "✕ fail", warn: "! warn", unknown: "? unknown", pass: "✓ pass" };
let latest = null;

function figure(name, value, note) {
  return make("div", {}, make("dt", {}, name), make("dd", {}, value, make("small", {}, note)));
}

function showFigures(report, decimals) {
  const [low, high] = report.interval;
  const percent = Math.round(100 * report.level);
  const share = report.ctr > 0 && report.delta != null ? `, ${signed(100 * report.delta / report.ctr, 1)}% of clicks` : "";
  const left = report.forecast.remaining;
  byId("figures").replaceChildren(
    figure("A − B, clicks per impression", signed(report.delta, decimals), low == null ? "no interval yet" :
      `${percent}%: ${signed(low, decimals)} to ${signed(high, decimals)}${share}`),
    figure("Impressions", count(report.impressions), "that count"),
    figure("Clicks", count(report.clicks), `${plain(report.ctr)} per impression`),
    figure("To a decision", left === 0 ? "decided" : left == null ? UNKNOWN : `≈ ${count(left)}`, left === 0 || left == null ? "" : "more impressions"));
  const whole = report.forecast.impressions;
  byId("progress").hidden = left === 0;
  byId("bar").value = whole > 0 ? Math.min(report.impressions / whole, 1) : 0;
  byId("forecast").textContent = report.forecast.text;
  const leftOut = [report.everyone?.text, ...(report.history ?? []).map(({ time, what, unit, reason }) =>
    `${new Date(1000 * time).toISOString().slice(0, 16).replace("T", " ")} UTC: ${what} ${unit}: ${reason}.`)].filter(Boolean);
  byId("visitors").textContent = report.visitors?.text ?? "";
  byId("visitors").hidden = !report.visitors;
  byId("left-out").textContent = leftOut.join(" ");
  byId("left-out").hidden = leftOut.length === 0;
}

function showGuardrails(guardrails) {
  const order = Object.keys(STATUS);
  const number = status => guardrails.filter(g => g.status === status).length;
  byId("guardrails-text").textContent = order.filter(number).map(status => `${number(status)} ${status}`).join(", ");
  const sorted = [...guardrails].sort((one, two) => order.indexOf(one.status) - order.indexOf(two.status));
  byId("guardrails").replaceChildren(...sorted.map(({ name, status, value, text }) => make("li", {},
    make("span", { class: `status ${status}` }, STATUS[status]), make("span", {}, name),
    make("span", { class: "number" }, plain(value)), make("span", { class: "text" }, text))));
}

function showTables(report, config, decimals) {
  const largest = Math.max(...report.contributors.map(c => Math.abs(c.contribution)));
  const fine = Math.min(decimals + 1, 8);
  byId("contributors").replaceChildren(report.contributors.length === 0 ? "None yet." : table(report.contributors, {
    query: c => c.query, "impressions": c => [count(c.impressions)], clicks: c => [count(c.clicks)],
    "part of A − B": c => [signed(c.contribution, fine)], "": c => contributionBar(c.contribution, largest),
  }));
  const ends = ([low, high]) => low == null ? UNKNOWN : `${signed(low, decimals)} to ${signed(high, decimals)}`;
  byId("readings").replaceChildren(table(report.readings, {
    reading: r => `${r.name}${r.name === report.reading ? " (speaks)" : r.contradicted ? " (contradicted)" : ""}`, assumes: r => r.assumes,
    "A − B": r => [r.delta == null ? UNKNOWN : signed(r.delta, decimals)], interval: r => [ends(r.interval)], "": r => r.text,
  }));
  byId("band-table").replaceChildren(table(report.band.filter(p => p.low != null), {
    units: p => [count(p.units)], "A − B": p => [signed(p.delta, decimals)],
    low: p => [signed(p.low, decimals)], high: p => [signed(p.high, decimals)],
  }));
  byId("theta-table").replaceChildren(table(report.theta.theta.map((t, i) => [i + 1, t, report.theta.standard_error[i]]), {
    rank: r => [count(r[0])], "examined": r => [plain(r[1])], "standard error": r => [r[2] > 0 ? plain(r[2]) : UNKNOWN],
  }));
  const tallies = Object.entries(report.tallies);
  byId("tallies").replaceChildren(tallies.length === 0 ? make("p", {}, "Nothing was left out.") :
    table(tallies, { what: t => t[0], "how often": t => [count(t[1])] }, "Left out or noticed"));
  byId("versions").replaceChildren(table(report.parts, {
    version: p => String(p.version), method: p => p.config.method, impressions: p => [count(p.impressions)], verdict: p => p.verdict,
  }, "Versions of the configuration: each by itself, never pooled"));
  byId("configuration").replaceChildren(table(Object.entries(config), {
    option: o => o[0], value: o => o[1] == null ? UNKNOWN : Array.isArray(o[1]) ? o[1].join(", ") : String(o[1]),
  }, `Configuration of version ${report.version}`));
}

function show(report) {
  latest = report;
  const { config } = report.parts.find(part => part.version === report.version);
  const [low, high] = report.interval, decimals = decimalsFor(report.interval);
  byId("report").hidden = false;
  document.title = `${report.trial} – ranktrial`;
  byId("name").textContent = report.trial;
  const before = report.parts.filter(part => part.version < report.version)
    .map(part => `; version ${part.version} had ${count(part.impressions)} impressions`).join("");
  byId("about").textContent =
    `${config.method}, top ${config.k}, version ${report.version}, ${report.stopped ? "stopped" : "running"}${before}`;
  const verdict = byId("verdict");
  if (verdict.textContent !== report.verdict) verdict.textContent = report.verdict;
  verdict.className = report.guardrails.some(g => g.status === "fail") ? "fail" : low > 0 ? "a" : high != null && high < 0 ? "b" : "";
  showFigures(report, decimals);
  showGuardrails(report.guardrails);
  showTables(report, config, decimals);
  byId("theta-text").textContent = thetaText(report.theta, config);
  drawCharts(report, config);
}

function thetaText(theta, config) {
  if (latest.readings.length === 1) return "Not used: an A/B test needs none.";
  if (theta.fitted && theta.standard_error.some(error => error > 0)) return "Fitted to the clicks of this trial, with two standard errors.";
  return `${theta.fitted ? "Fitted to earlier clicks." : "Assumed, not fitted."}${theta.note ? ` ${theta.note[0].toUpperCase()}${theta.note.slice(1)}` : ""}`;
}

function drawCharts(report, config) {
  drawBand(byId("band"), report, config);
  drawTheta(byId("theta"), report.theta);
}

// Charts are drawn to the width there is, so their text keeps its size on a phone.
let drawnAt = 0;
new ResizeObserver(() => {
  const width = byId("report").clientWidth;
  if (latest === null || width === drawnAt) return;
  drawnAt = width;
  drawCharts(latest, latest.parts.find(part => part.version === latest.version).config);
}).observe(byId("report"));
