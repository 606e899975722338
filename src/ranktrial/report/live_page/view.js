// Draws a trial's report (the JSON of ranktrial.trial.Report) into index.html; the live page and the HTML report both use it.
// Sentences and numbers come from the report, which has one decision, of B against A; nothing is decided here.
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

// As many decimals as the report's sentences have (ranktrial.analysis.verdict.decimals).
function decimalsFor([low, high], least = 4) {
  if (low == null || !(high > low)) return least;
  return Math.min(Math.max(Math.ceil(-Math.log10((high - low) / 2)) + 1, least), 8);
}

// What differences are of: clicks per search, or what another metric that decides is counted in.
const unitOf = report => report.unit ?? "clicks per search";
const measureOf = report => report.measure ?? "clicks";
const capital = text => text[0].toUpperCase() + text.slice(1);

const percent = (x, decimals) => x == null ? UNKNOWN : `${signed(100 * x, decimals)}%`;
const level = report => `${Number((100 * report.decision.level).toPrecision(4))}%`;
const range = ([low, high], write) => low == null || high == null ? UNKNOWN : `${write(low)} to ${write(high)}`;

// --- times, in UTC, as everywhere --------------------------------------------------------------------------------------------

const DAY = 86400;
const STEPS = [1, 2, 5, 10, 15, 30, ...[1, 2, 5, 10, 15, 30].map(m => 60 * m), ...[1, 2, 3, 6, 12].map(h => 3600 * h),
  ...[1, 2, 3, 5, 7, 14, 28, 56, 91, 182, 364, 728, 1820].map(d => DAY * d)];
const MONDAY = 4 * DAY;  // the first after 1970 began

const utc = (seconds, options) => new Date(1000 * seconds).toLocaleString("en-GB", { timeZone: "UTC", ...options });
const day = seconds => utc(seconds, { day: "numeric", month: "short" });
const clock = (seconds, options) => utc(seconds, { hour: "2-digit", minute: "2-digit", ...options });
const told = seconds => seconds == null ? UNKNOWN : `${utc(seconds, { day: "numeric", month: "short", year: "numeric" })}, ${clock(seconds)} UTC`;

function howLong(days) {
  if (days == null) return UNKNOWN;
  const [number, unit] = days >= 1 ? [days, "day"] : days >= 1 / 24 ? [24 * days, "hour"] : days >= 1 / 1440 ? [1440 * days, "minute"] : [Math.round(86400 * days), "second"];
  const text = number >= 9.95 ? count(number) : Number(number.toFixed(1)).toString();
  return `${text} ${unit}${text === "1" ? "" : "s"}`;
}

// How long before `now` that was; clocks may differ by a little.
function ago(seconds, now) {
  if (seconds == null) return UNKNOWN;
  return now - seconds < 1 ? "just now" : `${howLong((now - seconds) / DAY)} ago`;
}

// Ticks at full seconds, minutes, hours, days or weeks, and what is written at them.
function timeTicks(low, high, most) {
  const step = STEPS.find(s => (high - low) / s <= most) ?? STEPS.at(-1);
  const offset = step >= 7 * DAY ? MONDAY : 0, first = Math.ceil((low - offset) / step - 1e-9);
  const ticks = Array.from({ length: Math.floor((high - offset) / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step + offset);
  const years = utc(low, { year: "numeric" }) === utc(high, { year: "numeric" }) ? {} : { year: "2-digit" };
  if (step >= DAY) return { ticks, text: s => utc(s, { day: "numeric", month: "short", ...years }), title: `date (UTC), ${utc(high, { year: "numeric" })}` };
  const seconds = step < 60 ? { second: "2-digit" } : {};
  return { ticks, text: s => s % DAY === 0 ? day(s) : clock(s, seconds), title: `time (UTC), from ${utc(low, { day: "numeric", month: "short", year: "numeric" })}` };
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
  svg.append(draw("text", { x: left, y: height - 6 }, x.title));
  svg.append(draw("text", { x: 0, y: 12 }, y.title));
  const inside = draw("g", { "clip-path": `url(#${clip})` });
  svg.append(inside);
  place.replaceChildren(svg);
  return { svg, inside, across, up, area };
}

const path = points => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function drawBand(place, report, config) {
  const known = report.band.filter(point => point.low != null && point.high != null);
  byId("band-table").parentElement.hidden = known.length === 0;
  if (known.length < 2) {
    place.replaceChildren(make("p", { class: "caption" }, noInterval(report)));
    byId("band-text").textContent = "";
    return;
  }
  const first = known[0], last = known.at(-1);
  const recent = known.filter(point => point.units >= last.units / 8);  // earlier ones are wider: they run off the top and bottom
  const low = Math.min(0, ...recent.map(p => p.low)), high = Math.max(0, ...recent.map(p => p.high));
  const pad = (high - low) * 0.06, decimals = decimalsFor([last.low, last.high]), narrow = place.clientWidth < 500;
  const y = { low: low - pad, high: high + pad, ticks: niceTicks(low, high, 6), title: unitOf(report) };
  const digits = Math.max(0, Math.ceil(-Math.log10(y.ticks[1] - y.ticks[0]) - 1e-9));
  const dated = last.time - first.time > 5;  // seconds: a log without times has its order alone
  const at = dated ? point => point.time : point => point.units, from = dated ? report.pace.began ?? first.time : 0;
  const x = { low: from, high: at(last), ...(dated ? timeTicks(from, at(last), narrow ? 4 : 8) :
    { ticks: niceTicks(0, last.units, narrow ? 4 : 8), text: count, title: "visitors" }) };
  const label = `Estimated difference of B against A with its ${level(report)} interval over time: ${bandNow(last, decimals)}.`;
  const { svg, inside, across, up, area } = axes(place, 300, label, x, { ...y, text: v => signed(v, digits) });
  const line = of => known.map(point => [across(at(point)), up(point[of])]);
  inside.append(draw("path", { class: "band", d: `${path([...line("high"), ...line("low").reverse()])}Z` }));
  for (const tick of y.ticks) inside.append(draw("line", { class: "grid", x1: area.x, x2: area.x + area.width, y1: up(tick), y2: up(tick) }));
  for (const edge of ["low", "high"]) inside.append(draw("path", { class: "edge", d: path(line(edge)) }));
  for (const limit of config.smallest ? [-config.smallest, config.smallest] : [])
    inside.append(draw("line", { class: "smallest", x1: area.x, x2: area.x + area.width, y1: up(limit), y2: up(limit) }));
  inside.append(draw("line", { class: "zero", x1: area.x, x2: area.x + area.width, y1: up(0), y2: up(0) }));
  inside.append(draw("path", { class: "line", d: path(line("difference")) }));
  const right = { x: area.x + area.width, "text-anchor": "end" };
  svg.append(draw("text", { class: "b", ...right, y: 12 }, "↑ B gets more"));
  svg.append(draw("text", { class: "a", ...right, y: area.y + area.height + 36 }, "↓ A gets more"));
  svg.classList.add(winnerOf(report));
  pointAt(svg, inside, area, known, point => across(at(point)), point => {
    const shown = point ?? last;
    byId("band-text").textContent =
      `${told(shown.time)}, after ${count(shown.units)} visitors: ${bandNow(shown, decimals)} (${level(report)} interval)` +
      `${config.smallest ? `; dashed: the smallest difference that matters, ${config.smallest}` : ""}.`;
  });
}

const noInterval = ({ shows }) => `There is no interval${shows === null ? " yet" : ""}.`;

const winnerOf = ({ decision }) => decision.winner === null ? "nobody" : `of-${decision.winner.toLowerCase()}`;

const bandNow = (point, decimals) =>
  `${signed(point.difference, decimals)}, ${signed(point.low, decimals)} to ${signed(point.high, decimals)}`;

// Tells the point nearest to the pointer, and null when it leaves.
function pointAt(svg, inside, area, points, across, tell) {
  const cursor = draw("line", { class: "cursor", y1: area.y, y2: area.y + area.height, visibility: "hidden" });
  inside.append(cursor);
  svg.addEventListener("pointermove", event => {
    const x = event.clientX - svg.getBoundingClientRect().left;
    const away = point => Math.abs(across(point) - x);
    const nearest = points.reduce((best, point) => away(point) < away(best) ? point : best);
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, across(nearest));
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

// A forest plot: the interval of every segment, and of all, one below the other. On a phone names stand above their intervals.
function drawForest(place, report, decimals) {
  const { rate } = report.segments, answers = byDeciding(report.segments), width = Math.max(place.clientWidth, 260), narrow = width < 560;
  const all = { value: "all searches", share: 1, difference: report.decision.difference, interval: report.decision.interval };
  const groups = [[null, [all]], ...Object.entries(Object.groupBy ? Object.groupBy(answers, a => a.attribute) : grouped(answers))];
  const known = [all, ...answers].filter(one => one.interval.every(end => end != null));
  if (known.length === 0) return place.replaceChildren(make("p", { class: "caption" }, noInterval(report)));
  const sizes = known.map(one => one.interval[1] - one.interval[0]).sort((one, two) => one - two);
  const shown = known.filter(one => one.interval[1] - one.interval[0] <= 4 * sizes[sizes.length >> 1]);  // wider ones run off the sides
  const low = Math.min(0, ...shown.map(one => one.interval[0])), high = Math.max(0, ...shown.map(one => one.interval[1]));
  const left = narrow ? 8 : 230, right = narrow ? 8 : 212, pad = 0.04 * (high - low || 1), bottom = 36;
  const across = v => left + (Math.min(Math.max(v, low - pad), high + pad) - low + pad) / (high - low + 2 * pad) * (width - left - right);
  const step = narrow ? 40 : 24, ticks = niceTicks(low - pad, high + pad, narrow ? 4 : 6);
  const digits = Math.max(0, Math.ceil(-Math.log10(ticks.length > 1 ? ticks[1] - ticks[0] : 1) - 1e-9));
  let y = 8;
  const rows = draw("g");
  for (const [name, some] of groups) {
    if (name !== null) rows.append(draw("text", { class: "group", x: narrow ? left : 0, y: (y += 26) - 6 }, name));
    for (const one of some) {
      const at = (y += step) - 8, side = one.discovery && one.difference !== 0 ? one.difference < 0 ? "a" : "b" : one === all ? "all" : "";
      const sure = one.interval.every(end => end != null), number = signed(one.difference, decimals);
      rows.append(draw("text", { x: left - (narrow ? 0 : 12), y: narrow ? at - 14 : at + 4, "text-anchor": narrow ? "start" : "end" },
        `${short(one.value)}${one === all ? "" : `, ${percentOf(one.share)}`}${narrow && sure ? `: ${number}` : ""}`));
      if (!narrow) rows.append(draw("text", { x: width, y: at + 4, "text-anchor": "end" }, sure ? `${number} (${range(one.interval, v => signed(v, decimals))})` : "no interval yet"));
      if (!sure) continue;
      rows.append(draw("line", { class: `segment ${side}`, x1: across(one.interval[0]), x2: across(one.interval[1]), y1: at, y2: at }));
      rows.append(draw("circle", { class: side, cx: across(one.difference), cy: at, r: one === all ? 5 : 4 }));
    }
  }
  const height = y + bottom + 6;
  const label = `Difference of B against A with its interval, for all and by segment: ${known.map(one => `${one.value} ${bandNow({ difference: one.difference, low: one.interval[0], high: one.interval[1] }, decimals)}`).join("; ")}.`;
  const svg = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const tick of ticks) {
    svg.append(draw("line", { class: tick === 0 ? "zero" : "grid", x1: across(tick), x2: across(tick), y1: 8, y2: y + 4 }));
    svg.append(draw("text", { x: across(tick), y: y + 20, "text-anchor": "middle" }, signed(tick, digits)));
  }
  const room = 90, side = across(0), y1 = height - 5;
  if (side > room) svg.append(draw("text", { class: "a", x: side - 8, y: y1, "text-anchor": "end" }, "← A gets more"));
  if (width - side > room) svg.append(draw("text", { class: "b", x: side + 8, y: y1 }, "B gets more →"));
  svg.append(rows);
  place.replaceChildren(svg);
  say("segments-text", `In ${unitOf(report).replace(/^in /, "")}, each with its own interval. ${report.segments.text} Coloured where chance does not explain it: ` +
    `on average at most ${Math.round(100 * rate)}% of all that is coloured is false.`);
}

const grouped = rows => rows.reduce((found, row) => ({ ...found, [row.attribute]: [...found[row.attribute] ?? [], row] }), {});
const short = text => text.length > 28 ? `${text.slice(0, 27)}…` : text;
const percentOf = share => `${share > 0 && share < 0.01 ? "<1" : Math.round(100 * share)}%`;

// Answers by segment of the metric that decides; those of others are in the table.
const byDeciding = ({ answers }) => answers.filter(one => one.metric === answers[0].metric);

function showSegments(report, decimals) {
  byId("segments").hidden = report.segments === null;
  if (report.segments === null) return;
  const { answers } = report.segments, several = answers.some(one => one.metric !== answers[0].metric);
  const write = s => x => signed(x, s.metric === answers[0].metric ? decimals : decimalsFor(s.interval));
  byId("segments-table").replaceChildren(table(answers, {
    segment: s => make("bdi", {}, `${s.attribute}: ${s.value}`), ...(several ? { metric: s => s.metric || "clicks" } : {}),
    searches: s => [`${count(s.searches)} (${percentOf(s.share)})`],
    "B − A": s => [write(s)(s.difference)], interval: s => [range(s.interval, write(s))], lift: s => [percent(s.lift.share, 1)],
    "for ranking": s => [write(s)(s.shrunken)], "told from chance": s => s.discovery ? "yes" : "no",
  }, "", true));
}

// --- metrics and guards ------------------------------------------------------------------------------------------------------

const ROLES = { primary: "decides", secondary: "looked at beside", guard: "guard" };
const GUARDED = { ok: "✓ no harm shown", harm: "✕ harm", unknown: "? not known" };

function showMetrics({ metrics = [], segments, pace }) {
  byId("metrics").hidden = metrics.length === 0;
  if (metrics.length === 0) return;
  const ends = metrics.flatMap(m => m.lift.interval).filter(end => end != null).map(Math.abs).sort((one, two) => one - two);
  const widest = 1.05 * Math.min(ends.at(-1) ?? 1, 4 * (ends[ends.length >> 1] ?? 1)) || 1;  // wider ones run off the sides
  const write = m => x => signed(x, decimalsFor(m.interval));
  const told = m => {
    const sure = m.lift.interval.every(end => end != null), digits = sure ? decimalsFor(m.lift.interval.map(end => 100 * end), 1) : 1;
    return [percent(m.lift.share, digits), sure && `${range(m.lift.interval, x => percent(x, digits))}`];
  };
  const small = text => text ? [make("small", {}, text)] : [];
  byId("metrics-table").replaceChildren(table(metrics, {
    metric: m => make("div", {}, make("b", {}, m.title), ...small([ROLES[m.role], m.better === "less" && "less is better"].filter(Boolean).join(", "))),
    lift: m => [make("span", {}, told(m)[0], ...small(told(m)[1]))],
    "": m => make("div", { class: "bars" }, liftBar(m, widest), metricCourse(m, pace)),
    "B − A": m => [write(m)(m.difference)],
    searches: m => [make("span", {}, count(m.searches), ...small(m.waiting > 0 && `${count(m.waiting)} more wait`))],
    finding: m => make("div", {}, make("span", { class: `status ${m.guard === "ok" ? "pass" : m.guard ?? ""}` }, finding(m)), ...small(m.note)),
  }, "", true));
  const secondary = metrics.some(m => m.role === "secondary"), rate = segments === null ? "" : " or by segment";
  byId("metrics-text").textContent = "Lift is the difference as a share of what A gets; every interval holds by itself, however often you look. Below it: B − A over the time of the trial." +
    (secondary ? ` Of what is looked at beside${rate} and told from chance, on average at most 5% is false.` : "") +
    (metrics.some(m => m.waiting > 0) ? " A search counts once the time in which events count is over; the dashed box is the time of searches that do not yet." : "");
}

function finding({ role, guard, discovery, interval }) {
  if (role === "guard") return GUARDED[guard];
  if (role === "primary") return "see above";
  return interval[0] == null ? "too early" : discovery ? "told from chance" : "may be chance";
}

// The interval of a lift: B on the right, coloured where it is sure which ranker is better.
function liftBar({ lift, better, role, guard, discovery, title }, widest) {
  const [low, high] = lift.interval, at = x => `${50 + 50 * Math.min(Math.max(x / widest, -1), 1)}%`;
  const zero = draw("line", { class: "zero", x1: "50%", x2: "50%", y1: 0, y2: 20 });
  if (low == null || high == null) return draw("svg", { "aria-hidden": "true" }, zero);
  const outside = low > 0 || high < 0, sure = role === "guard" ? guard === "harm" : role === "secondary" ? discovery : outside;
  const side = !sure || !outside && role !== "guard" ? "" : (lift.share > 0) === (better === "more") ? "b" : "a";
  return draw("svg", { role: "img", "aria-label": `${title}: lift ${range(lift.interval, x => percent(x, 1))}` }, zero,
    draw("line", { class: `segment ${side}`, x1: at(low), x2: at(high), y1: 10, y2: 10 }),
    draw("circle", { class: side, cx: at(lift.share), cy: 10, r: 4 }));
}

// The interval of B - A by one metric over the time of the trial, and the time whose searches do not count yet.
function metricCourse({ title, band = [], waiting }, { began, latest }) {
  const known = band.filter(point => point.low != null && point.high != null), last = known.at(-1);
  const svg = draw("svg", { class: "course", viewBox: "0 0 100 30", preserveAspectRatio: "none" });
  if (!(latest > began) || known.length < 2 && waiting === 0) {
    svg.setAttribute("aria-hidden", "true");
    return svg;
  }
  const across = time => Math.min(Math.max(100 * (time - began) / (latest - began), 0), 100);
  const matured = known.length ? across(last.time) : 0;
  if (waiting > 0) svg.append(draw("rect", { class: "waiting", x: matured, y: 0, width: 100 - matured, height: 30 }));
  if (known.length > 1) {
    const recent = known.filter(point => point.units >= last.units / 8);
    const low = Math.min(0, ...recent.map(p => p.low)), high = Math.max(0, ...recent.map(p => p.high));
    const up = v => Math.min(Math.max(29 - 28 * (v - low) / (high - low || 1), -30), 60);
    const line = of => known.map(point => [across(point.time), up(point[of])]);
    svg.append(draw("path", { class: "band", d: `${path([...line("high"), ...line("low").reverse()])}Z` }),
      draw("line", { class: "zero", x1: 0, x2: 100, y1: up(0), y2: up(0) }), draw("path", { class: "line", d: path(line("difference")) }));
  }
  const so = known.length > 1 ? bandNow(last, decimalsFor([last.low, last.high])) : "nothing counts yet";
  const label = `${title} over time, B against A: ${so}${waiting > 0 ? `; ${count(waiting)} searches do not count yet` : ""}`;
  for (const [name, value] of [["role", "img"], ["aria-label", label]]) svg.setAttribute(name, value);
  svg.append(draw("title", {}, label));
  return svg;
}

const HARM = { pass: "✓ no harm shown", harm: "✕ harm", unknown: "? not known" };

function showGuards({ guards = [] }) {
  byId("guards").hidden = guards.length === 0;
  byId("guards-list").replaceChildren(...guards.map(({ name, status, text }) =>
    make("li", {}, make("span", { class: `status ${status}` }, HARM[status]),
      make("div", {}, make("span", { class: "check" }, name), make("span", { class: "text" }, text)))));
}

// --- tables ----------------------------------------------------------------------------------------------------------------

// `columns` maps a heading to what is in a cell: text, or [text] for a number, or an element. On a phone the rows of a wide table
// are cards, and its cells have their heading before them.
function table(rows, columns, caption, cards = false) {
  const names = Object.keys(columns);
  const head = names.map(name => make("th", Array.isArray(rows[0] && columns[name](rows[0])) ? { scope: "col", class: "number" } : { scope: "col" }, name));
  const body = rows.map(row => make("tr", {}, ...names.map(name => cell(columns[name](row), name))));
  const parts = [make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)];
  return make("table", cards ? { class: "cards" } : {}, ...(caption ? [make("caption", {}, caption)] : []), ...parts);
}

function cell(value, heading) {
  const name = heading ? { "data-name": heading } : {};
  if (Array.isArray(value)) return make("td", { ...name, class: "number" }, ...value);
  const drawn = value instanceof SVGElement || value.className === "bars";
  return drawn ? make("td", { class: "bar" }, value) : make("td", name, value);
}

function contributionBar(value, largest) {
  const size = largest > 0 ? 50 * Math.abs(value) / largest : 0;
  return draw("svg", { "aria-hidden": "true" },
    draw("rect", { class: value < 0 ? "a" : "b", x: `${value < 0 ? 50 - size : 50}%`, width: `${size}%`, y: 2, height: 12 }),
    draw("line", { class: "zero", x1: "50%", x2: "50%", y1: 0, y2: 16 }));
}

// --- the whole page --------------------------------------------------------------------------------------------------------

const STATUS = { fail: "✕ fails", warn: "! warns", unknown: "? not known", pass: "✓ passes" };
const PLURAL = { fail: "fail", warn: "warn", unknown: "not known", pass: "pass" };
const GROUPS = ["assumptions", "data", "visitors"];
const TOO_MANY = 1e8, TOO_LONG = 1000;  // searches and days, as in ranktrial.analysis.verdict
let latest = null;

function figure(name, value, ...notes) {
  const told = notes.filter(Boolean).map(note => note instanceof Element ? note : make("small", {}, note));
  return make("div", {}, make("dt", {}, name), make("dd", {}, value, ...told));
}

// Text is only set where it is another, so that screen readers do not read it again.
function say(id, text, hidden = text === "") {
  const place = byId(id);
  if (place.textContent !== text) place.textContent = text;
  place.hidden = hidden;
}

function showFigures(report, decimals) {
  const { decision, pace, names: [a, b] } = report, { lift, difference } = decision, unit = unitOf(report);
  const whole = x => x == null ? UNKNOWN : `${x < 0 ? "−" : "+"}${count(Math.abs(x))}`;
  const [known, sure] = [decision.interval, lift.interval].map(ends => ends.every(end => end != null)), daily = pace.searches_a_day;
  const digits = sure ? decimalsFor(lift.interval.map(end => 100 * end), 1) : 1;
  byId("figures").replaceChildren(
    figure(`${capital(measureOf(report))} of ${b.label} against ${a.label}`, percent(lift.share, digits),
      sure ? `${level(report)} interval ${range(lift.interval, x => percent(x, digits))}` : "no interval"),
    figure(capital(unit.replace(/^(?!in )/, "in ")), signed(difference, decimals), known && range(decision.interval, x => signed(x, decimals)),
      known && daily != null && !unit.startsWith("in ") && `${whole(difference * daily)} ${measureOf(report)} a day (${range(decision.interval, x => whole(x * daily))})`),
    toDecision(report),
    figure("Searches", count(report.impressions), report.impressions > 0 && `of ${count(report.units)} visitors`,
      report.impressions > 0 && `${count(report.clicks)} clicks, ${plain(report.ctr)} per search`),
    make("div", { id: "last-search" }),
    figure(report.shows === null ? "Runs for" : "Ran for", howLong(pace.days), pace.began == null ? "not begun" : `since ${told(pace.began)}`,
      daily != null && `${count(daily)} searches a day`));
  say("course", report.course);
  say("futile", report.futile);
  say("visitors", report.visitors?.text ?? "");
  say("left-out", report.everyone?.text ?? "");
}

// The way to a decision; "decided" only where the headline says the same.
function toDecision({ decision, shows, days_left: days }) {
  const { state, reasons, forecast: { searches, remaining } } = decision, name = "To a decision";
  if (state === "decided") return figure(name, "decided", "0 is outside of the interval");
  if (state === "alike") return figure(name, "decided", "no difference that matters");
  if (shows !== null) return figure(name, "none", "the trial is stopped");
  if (state === "not trusted" || decision.failed.length > 0) return figure(name, UNKNOWN, "none while a check fails");
  if (decision.estimator === null) return figure(name, UNKNOWN, "known after the first interval");
  if (reasons.includes("untested")) return figure(name, UNKNOWN, "none without A/B traffic");
  if (reasons.includes("too soon")) return figure(name, UNKNOWN, "its time is not over yet");
  if (reasons.includes("guard")) return figure(name, UNKNOWN, "none while a guard tells harm");
  if (reasons.includes("hostile")) return figure(name, UNKNOWN, "see what to do next");
  if (searches == null || !(remaining >= 1 && remaining < TOO_MANY) || days >= TOO_LONG) return figure(name, UNKNOWN, "not in sight");
  const bar = make("progress", { max: 1, value: decision.searches / searches, "aria-label": "Searches so far, of those to a decision" });
  const more = count(Number(remaining.toPrecision(2)));
  return days > 0 ? figure(name, `≈ ${howLong(days)}`, `about ${more} more searches`, bar) : figure(name, `≈ ${more}`, "more searches", bar);
}

// The ages of the last search and click, which change while the report stays the same.
function showAges(now) {
  if (latest === null) return;
  const { pace } = latest;
  byId("last-search").replaceChildren(...figure("Last search", ago(pace.latest, now),
    pace.latest != null && `${told(pace.latest)}`,
    pace.latest != null && (pace.latest_click == null ? "none was clicked" :
      pace.latest_click === pace.latest ? "it was clicked" : `last one clicked ${ago(pace.latest_click, now)}`)).childNodes);
}

function guardrail({ name, title, status, value, text, cause, remedy }) {
  const told = [make("span", { class: "text" }, text)];
  if (cause) told.push(make("span", { class: "advice" }, make("b", {}, "Likely cause: "), cause));
  if (remedy) told.push(make("span", { class: "advice" }, make("b", {}, "What to do: "), remedy));
  return make("li", {}, make("span", { class: `status ${status}` }, STATUS[status]),
    make("div", {}, make("span", { class: "check" }, title || name, " ", make("small", {}, value == null ? name : `${name} ${plain(value)}`)), ...told));
}

function showGuardrails({ guardrails, impressions }) {
  const order = Object.keys(STATUS), checks = byId("checks");
  const number = status => guardrails.filter(g => g.status === status).length;
  checks.hidden = impressions === 0;
  say("guardrails-text", impressions === 0 ? "There is nothing to check before the first search." : "");
  if (impressions === 0) return;
  const counts = order.filter(number).map(status => `${number(status)} ${number(status) === 1 ? STATUS[status].slice(2) : PLURAL[status]}`);
  byId("checks-count").textContent = `${guardrails.length} ${guardrails.length === 1 ? "check" : "checks"}: ${counts.join(", ")}`;
  const failing = String(number("fail") > 0);
  if (checks.dataset.failing !== failing) checks.open = failing === "true";  // as the reader left it otherwise
  checks.dataset.failing = failing;
  for (const group of GROUPS) {
    const some = guardrails.filter(g => g.group === group), passing = some.filter(g => g.status === "pass");
    const open = some.filter(g => g.status !== "pass").sort((one, two) => order.indexOf(one.status) - order.indexOf(two.status));
    byId(`${group}-open`).replaceChildren(...open.map(guardrail));
    byId(`${group}-pass`).replaceChildren(...passing.map(guardrail));
    byId(`${group}-count`).textContent = `${passing.length} of ${some.length} pass`;
    byId(`${group}-count`).parentElement.hidden = passing.length === 0;
    byId(`${group}-title`).hidden = some.length === 0;
  }
}

function showTables(report, config, decimals) {
  const { decision } = report, write = x => signed(x, decimals), part = "B − A";
  const largest = Math.max(...report.contributors.map(c => Math.abs(c.contribution)));
  const fine = Math.min(decimals + 1, 8);
  byId("contributors").replaceChildren(report.contributors.length === 0 ? "None yet." : table(report.contributors, {
    query: c => make("bdi", {}, c.label), searches: c => [count(c.impressions)], clicks: c => [count(c.clicks)],
    [`part of ${part}`]: c => [signed(c.contribution, fine)], "": c => contributionBar(c.contribution, largest),
  }));
  const widened = decision.allowance > 0 && decision.used.some(name => name !== "A/B") ?
    `, after widening those that assume something by ${plain(decision.allowance)} on either side` : "";
  byId("estimates").parentElement.hidden = report.impressions === 0;
  say("estimates-text", `The same searches with fewer and more assumptions, each with an interval of its own. The answer is what ` +
    `those in use have in common${widened}.`);
  byId("estimates").replaceChildren(table(report.estimates, {
    estimate: e => e.name, assumes: e => e.assumes, [part]: e => [write(e.difference)],
    "its own interval": e => [range(e.interval, write)],
    "in use": e => e.used ? "yes" : e.contradicted ? "no, contradicted" : e.interval[0] == null ? e.text || "not yet" : "no",
  }, "", true));
  const tested = report.estimates.filter(e => e.text && e.interval[0] != null);
  byId("tests").parentElement.hidden = tested.length === 0;
  byId("tests").replaceChildren(table(tested, { estimate: e => e.name, "against those that assume less": e => e.text }, "", true));
  byId("band-table").replaceChildren(table(report.band.filter(p => p.low != null && p.high != null), {
    time: p => told(p.time), visitors: p => [count(p.units)], [part]: p => [write(p.difference)],
    low: p => [write(p.low)], high: p => [write(p.high)],
  }, "", true));
  byId("theta-table").replaceChildren(table(report.theta.theta.map((t, i) => [i + 1, t, report.theta.standard_error[i]]), {
    rank: r => [count(r[0])], "examined": r => [plain(r[1])], "standard error": r => [r[2] > 0 ? plain(r[2]) : UNKNOWN],
  }));
  byId("history").replaceChildren(report.history.length === 0 ? "Nothing is known of that." : table([...report.history].reverse(), {
    when: h => told(h.time), what: done, who: h => h.who || UNKNOWN, why: h => make("bdi", {}, h.reason || UNKNOWN),
  }, "", true));
  const tallies = Object.entries(report.tallies);
  byId("tallies").replaceChildren(tallies.length === 0 ? make("p", {}, "Nothing was left out.") :
    table(tallies, { what: t => t[0], "how often": t => [count(t[1])] }, "Left out or noticed"));
  byId("versions").replaceChildren(table(report.parts, {
    version: p => String(p.version), method: p => p.config.method, searches: p => [count(p.impressions)], verdict: p => p.verdict,
  }, "Versions of the configuration: each by itself, never pooled", true));
  byId("configuration").replaceChildren(table(Object.entries(config), { option: o => o[0], value: o => setting(o[1]) },
    `Configuration of version ${report.version}`));
}

// An entry of the history; options that changed have a line each, from what to what.
function done({ what, unit, detail }) {
  const [, version, changes] = /^(?:(\d+(?: again)?) \()?(.*? -> .*?)\)?$/s.exec(detail) ?? [];
  const head = [what, unit, changes === undefined ? detail : version].filter(Boolean).join(" ");
  const lines = changes === undefined ? [] : changes.split("; ").map(change => make("span", { class: "change" }, change.replace(" -> ", " → ")));
  return make("div", {}, head, ...lines);
}

function setting(value) {
  if (value == null) return UNKNOWN;
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value !== "object") return String(value);
  return Object.entries(value).filter(([, one]) => one != null).map(([name, one]) => `${name} ${one}`).join(", ") || "none";
}

function show(given, now) {
  const { config } = given.parts.find(part => part.version === given.version);
  const names = ["A", "B"].map((letter, i) => ({ letter, label: config.names[i] === letter ? letter : `${letter} (${config.names[i]})` }));
  const report = latest = { ...given, names }, { decision, text, shows } = report, [a, b] = names;
  const decimals = decimalsFor(decision.interval);
  byId("report").hidden = false;
  document.title = `${report.trial} – ranktrial`;
  byId("name").textContent = report.trial;
  const others = report.parts.filter(part => part.version !== report.version)
    .map(part => `; version ${part.version} had ${count(part.impressions)} searches`).join("");
  byId("about").textContent = `${b.label} against ${a.label}, ${standing(shows)}; ${config.method}, top ${config.k}, version ${report.version}${others}`;
  say("warning", report.pace.warning);
  say("headline", text.headline);
  say("details", text.details);
  say("next", text.next);
  say("trust", text.trust);
  byId("verdict").className = decision.failed.length > 0 ? "fail" : winnerOf(report);
  showFigures(report, decimals);
  showAges(now);
  showGuardrails(report);
  showTables(report, config, decimals);
  byId("band-title").textContent = `Difference in ${unitOf(report).replace(/^in /, "")}, B against A`;
  showMetrics(report);
  showSegments(report, decimals);
  showGuards(report);
  byId("theta-section").hidden = report.estimates.length === 1;  // an A/B test needs none
  byId("theta-text").textContent = thetaText(report.theta);
  drawCharts(report, config);
}

const standing = shows => shows === null ? "running" : `stopped, shows ${shows}`;

function thetaText(theta) {
  if (theta.fitted && theta.standard_error.some(error => error > 0)) return "Fitted to the clicks of this trial, with two standard errors.";
  const note = theta.note && ` ${capital(theta.note)}${/[.?!]$/.test(theta.note) ? "" : "."}`;
  return `${theta.fitted ? "Fitted to earlier clicks." : "Assumed, not fitted."}${note}`;
}

function drawCharts(report, config) {
  drawBand(byId("band"), report, config);
  drawTheta(byId("theta"), report.theta);
  if (report.segments !== null) drawForest(byId("forest"), report, decimalsFor(report.decision.interval));
}

// Charts are drawn to the width there is, so their text keeps its size on a phone.
let drawnAt = 0;
new ResizeObserver(() => {
  const width = byId("report").clientWidth;
  if (latest === null || width === drawnAt) return;
  drawnAt = width;
  drawCharts(latest, latest.parts.find(part => part.version === latest.version).config);
}).observe(byId("report"));
