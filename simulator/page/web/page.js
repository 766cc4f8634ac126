"use strict";
// Answers for the page: what is under the mouse, what the pool holds at an instant, a request's block table.
// plotly draws. Numbers come from the columns in #data; everything said about a slot follows simulator/history.py.
(async () => {
  const $ = (id) => document.getElementById(id);
  const NEVER = -1;

  // The data: a length, a head in JSON, and columns of numbers behind it.
  async function unpacked() {
    const packed = Uint8Array.from(atob($("data").textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const buffer = await new Response(stream).arrayBuffer();
    const length = Number(new DataView(buffer).getBigUint64(0, true));
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
    const types = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, float32: Float32Array, float64: Float64Array };
    const column = ({ at, count, type }) => new types[type](buffer, 8 + length + at, count);
    const columns = (places) => Object.fromEntries(Object.entries(places).map(([name, place]) => [name, column(place)]));
    head.requests = columns(head.requests);
    for (const run of head.runs) {
      Object.assign(run.map, columns({ kind: run.map.kind, request: run.map.request, ...(run.map.offset && { offset: run.map.offset }) }));
      run.waste = columns(run.waste);
      run.log = run.log && columns(run.log);
      if (run.log) run.firstExtent = firstOfEach(run.log.extent_stay, run.log.stay_request.length);
    }
    return head;
  }

  /** Where the extents of each stay begin; one entry more than stays. */
  function firstOfEach(stays, count) {
    const first = new Uint32Array(count + 1);
    for (const stay of stays) first[stay + 1]++;
    for (let stay = 0; stay < count; stay++) first[stay + 1] += first[stay];
    return first;
  }

  const data = await unpacked();
  const { runs, requests } = data;
  const HOLE = data.kinds.indexOf("hole"), WRITTEN = 1, RESERVED = 2, UNUSED = 3, ROUNDING = 4, TAIL = 5;
  const LEDGER = Object.fromEntries(data.categories.map(({ name, color }) => [name, color]));
  const state = { time: data.start_s, run: 0, picked: NEVER, unknown: "", pool: null };
  const number = (value, digits = 0) =>
    value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const counted = (count, what) => `${number(count)} ${what}${count === 1 ? "" : "s"}`;
  const span = data.end_s - data.start_s, digits = span < 100 ? Math.min(12, 2 + Math.max(0, -Math.floor(Math.log10(span)))) : 1;
  const seconds = (value) => `${number(value, digits)} s`;

  /** The index of the last entry that is not above a value, -1 when there is none. */
  function lastUpTo(values, value) {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] <= value) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  /** The iteration that runs at an instant, -1 in a gap: simulator/clock.py. */
  function iterationAt(run, time) {
    const log = run.log, row = lastUpTo(log.anchor_time_s, time);
    if (row < 0 || time >= run.end_s || !log.anchor_running[row]) return NEVER;
    const batch = log.anchor_running[row], [base, sequence, kv] = run.cost;
    const left = (time - log.anchor_time_s[row]) * 1e12 - log.anchor_first_ps[row] + 0.5 + 4e-4 * time;
    let iteration = log.anchor_iteration[row];
    if (left >= 0) {
      const step = kv * batch, next = base + sequence * batch + kv * (log.anchor_used[row] + batch);
      const slope = 2 * next - step;
      iteration += 1 + Math.floor(step ? (Math.sqrt(slope * slope + 8 * step * left) - slope) / (2 * step) : left / next);
    }
    const after = row + 1 < log.anchor_iteration.length ? log.anchor_iteration[row + 1] : run.iterations;
    return Math.min(iteration, after - 1);
  }

  /** Who holds what at an instant: a list of requests, each with its extents in order and what they hold. */
  function layoutAt(run, time) {
    const log = run.log, iteration = iterationAt(run, time), held = [];
    if (iteration < 0) return held;
    for (let stay = 0; stay < log.stay_request.length; stay++) {
      if (!(log.stay_begin_s[stay] <= time && time < log.stay_end_s[stay])) continue;
      const extents = [];
      for (let row = run.firstExtent[stay]; row < run.firstExtent[stay + 1]; row++) {
        const end = log.extent_end_s ? log.extent_end_s[row] : log.stay_end_s[stay];
        if (log.extent_begin_s[row] <= time && time < end)
          extents.push({ start: log.extent_start[row], slots: log.extent_slots[row], offset: log.extent_offset[row] });
      }
      extents.sort((a, b) => a.offset - b.offset);
      const final = log.stay_final[stay];
      held.push({
        request: log.stay_request[stay],
        extents,
        written: log.stay_tokens[stay] + iteration - log.stay_first[stay],
        final,
        asked: final + log.stay_overprovision[stay],
      });
    }
    return held;
  }

  const kindOf = (offset, one) =>
    offset < one.written ? WRITTEN : offset < one.final ? RESERVED : offset < one.asked ? UNUSED : ROUNDING;

  /** The pool at an instant in cells: from the log, or where the page has none from the map's column. */
  function poolAt(run, time) {
    const { size, count, across } = run.pool;
    const kind = new Uint8Array(count).fill(HOLE), request = new Int32Array(count).fill(NEVER), offset = new Uint32Array(count);
    const address = (cell) => Math.min(cell * size + (size >> 1), run.capacity - 1);
    for (let cell = count - 1; cell >= 0 && address(cell) >= run.capacity - run.tail; cell--) kind[cell] = TAIL;
    if (run.log) {
      for (const one of layoutAt(run, time))
        for (const extent of one.extents) {
          let cell = Math.max(0, Math.floor((extent.start - (size >> 1)) / size));
          while (cell < count && address(cell) < extent.start) cell++;
          for (; cell < count && address(cell) < extent.start + extent.slots; cell++) {
            offset[cell] = extent.offset + address(cell) - extent.start;
            request[cell] = one.request;
            kind[cell] = kindOf(offset[cell], one);
          }
        }
    } else {
      const column = columnAt(run, time);
      for (let cell = 0; cell < count; cell++) {
        const place = Math.min(Math.floor(address(cell) / run.map.size), run.map.rows - 1) * run.map.columns + column;
        kind[cell] = run.map.kind[place];
        request[cell] = run.map.request[place] - 1;
        offset[cell] = run.map.offset[place];
      }
    }
    return { kind, request, offset, address, across, count };
  }

  const dx = (run) => (data.end_s - data.start_s) / run.map.columns;
  const columnAt = (run, time) =>
    Math.max(0, Math.min(run.map.columns - 1, Math.floor((time - data.start_s) / dx(run))));

  /** An image of cells, the first one in its upper left corner (plotly turns it); all but the picked request pale. */
  function imageOf(width, height, kindAt, requestAt) {
    const canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d"), image = context.createImageData(width, height);
    for (let cell = 0; cell < width * height; cell++) {
      const kind = kindAt(cell);
      if (kind === undefined) continue;
      const request = requestAt(cell), hues = data.palette[kind];
      const color = hues[Math.max(request, 0) % hues.length];
      const pale = state.picked >= 0 && request !== state.picked && kind !== HOLE ? 0.78 : 0;
      const place = 4 * cell;
      for (let part = 0; part < 3; part++) image.data[place + part] = color[part] * (1 - pale) + 255 * pale;
      image.data[place + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    return canvas.toDataURL("image/png");
  }

  const mapImage = (run) =>
    imageOf(run.map.columns, run.map.rows, (cell) => run.map.kind[cell], (cell) => run.map.request[cell] - 1);

  // For labels that are not shown plotly warns that it does not understand the colour of a pixel.
  Plotly.setPlotConfig({ logging: 0 });
  const CONFIG = { displaylogo: false, responsive: true };
  const axis = (place) => (place === 0 ? "y" : `y${place + 1}`);
  const MAP_PX = 250, WASTE_PX = 80, INNER_PX = 14, GAP_PX = 40, TOP_PX = 64, BOTTOM_PX = 12;
  const heightPx = TOP_PX + BOTTOM_PX + runs.length * (MAP_PX + WASTE_PX) + (runs.length - 1) * GAP_PX + runs.length * INNER_PX;

  function drawMaps() {
    const inner = heightPx - TOP_PX - BOTTOM_PX, traces = [], annotations = [];
    const font = { family: 'system-ui, "DejaVu Sans", sans-serif', size: 12, color: "#222" };
    const layout = {
      height: heightPx,
      margin: { l: 76, r: 12, t: TOP_PX, b: BOTTOM_PX },
      font,
      showlegend: false,
      hovermode: "closest",
      hoverdistance: 1,
      dragmode: "zoom",
      annotations,
      shapes: [{ type: "line", xref: "x", yref: "paper", x0: state.time, x1: state.time, y0: 0, y1: 1, line: { color: "#cf5f12", width: 1.5 } }],
      xaxis: { range: [data.start_s, data.end_s], title: { text: "time (s)", standoff: 4 }, side: "top", anchor: "y", ticks: "outside", showgrid: false, zeroline: false, constrain: "range" },
    };
    let top = 0;
    runs.forEach((run, nth) => {
      const place = (from, px) => [1 - (from + px) / inner, 1 - from / inner].map((edge) => Math.min(1, Math.max(0, edge)));
      const common = { zeroline: false, showgrid: false, fixedrange: false, tickformat: ",d", ...(run.capacity <= 10 && { tick0: 0, dtick: 1 }) };
      layout["yaxis" + (nth ? 2 * nth + 1 : "")] = {
        ...common, domain: place(top, MAP_PX), range: [0, run.capacity], scaleanchor: false, title: { text: "address (slots)" }, showline: true, mirror: true, linecolor: "#bbb",
      };
      layout[`yaxis${2 * nth + 2}`] = {
        zeroline: false, showgrid: false, domain: place(top + MAP_PX + INNER_PX, WASTE_PX), range: [0, 100], tickvals: [0, 50, 100], title: { text: "% of pool" }, fixedrange: true,
      };
      annotations.push({ text: `<b>${escaped(run.name)}</b>${run.share ? "" : ": nothing ran"}`, xref: "paper", yref: "paper", x: 0, y: 1 - top / inner, xanchor: "left", yanchor: "bottom", yshift: nth ? 0 : 38, showarrow: false, font });
      const { size } = run.map;
      traces.push({
        type: "image", source: mapImage(run), yaxis: axis(2 * nth), hoverinfo: "none", customdata: nth,
        x0: data.start_s + dx(run) / 2, dx: dx(run), y0: size / 2, dy: size,
      });
      const x = run.waste.edges_s;
      for (const { name, color } of data.categories) {
        const y = [...run.waste[name], run.waste[name].at(-1)];
        traces.push({ type: "scatter", mode: "lines", x, y, name, yaxis: axis(2 * nth + 1), stackgroup: `waste${nth}`, line: { shape: "hv", width: 0, color }, fillcolor: color, hoverinfo: "skip" });
      }
      top += MAP_PX + WASTE_PX + INNER_PX + GAP_PX;
    });
    return Plotly.newPlot($("maps"), traces, layout, { ...CONFIG, modeBarButtonsToRemove: ["select2d", "lasso2d"] });
  }

  async function drawPool() {
    const run = runs[state.run], pool = (state.pool = poolAt(run, state.time)), down = Math.ceil(pool.count / pool.across);
    const source = imageOf(pool.across, down, (cell) => pool.kind[cell], (cell) => pool.request[cell]);
    const width = pool.across * run.pool.size;
    const trace = { type: "image", source, hoverinfo: "none", x0: run.pool.size / 2, dx: run.pool.size, y0: width / 2, dy: width };
    const layout = {
      height: 220, margin: { l: 62, r: 22, t: 10, b: 42 }, font: { family: 'system-ui, "DejaVu Sans", sans-serif', size: 11, color: "#222" }, hovermode: "closest",
      xaxis: { range: [0, width], tickvals: [0, 0.25, 0.5, 0.75, 1].map((part) => part * width).filter(Number.isInteger), tickprefix: "+", tickformat: ",d", showgrid: false, zeroline: false, title: { text: "slots from the row's address" }, fixedrange: true },
      yaxis: { range: [down * width, 0], tickformat: ",d", tick0: 0, dtick: Math.ceil(down / 6) * width, showgrid: false, zeroline: false, scaleanchor: false, fixedrange: true, showline: true, mirror: true, linecolor: "#bbb" },
    };
    await Plotly.react($("pool"), [trace], layout, { ...CONFIG, displayModeBar: false });
  }

  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const swatch = (color) => `<i class="swatch" style="background:${color}"></i>`;
  const grey = (kind) => {
    const hues = data.palette[kind], mean = [0, 1, 2].map((part) => hues.reduce((sum, hue) => sum + hue[part], 0) / hues.length);
    const level = Math.round(0.2126 * mean[0] + 0.7152 * mean[1] + 0.0722 * mean[2]);
    return `rgb(${level},${level},${level})`;
  };

  function drawLedger() {
    const run = runs[state.run], { edges_s: edges } = run.waste;
    const bin = Math.max(0, Math.min(edges.length - 2, lastUpTo(edges, state.time)));
    const inside = state.time <= edges.at(-1);
    const shown = data.categories.map(({ name, color }) => {
      const value = inside ? run.waste[name][bin] : name === "idle" ? 100 : 0;
      return `<span>${swatch(color)}${name}<b>${number(value, 1)} %</b></span>`;
    });
    for (const name of ["running", "waiting"])
      shown.push(`<span>${swatch("transparent")}${name}<b>${number(inside ? run.waste[name][bin] : 0, 1)}</b></span>`);
    $("ledger").innerHTML = shown.join("");
    $("bin").textContent = !run.share ? "Nothing ran." : inside
      ? `Means from ${seconds(edges[bin])} to ${seconds(edges[bin + 1])}; ${run.pool.size === 1 ? "below, the pool slot by slot" : `below, a cell is ${counted(run.pool.size, "slot")} and shows what is in its middle`}.`
      : "The run is over.";
    $("when").textContent = `The pool at ${seconds(state.time)}`;
  }

  function drawTable() {
    const run = runs[state.run], picked = state.picked, table = $("table");
    table.innerHTML = "";
    if (picked < 0) {
      $("picked").textContent = state.unknown === "" ? "Click a cell of a map, or type a request's number." : `There is no request ${state.unknown}.`;
      return;
    }
    let text = `prompt ${number(requests.prompt_tokens[picked])}, output ${number(requests.output_tokens[picked])} tokens; arrived at ${seconds(requests.arrival_s[picked])}`;
    if (!run.log) {
      $("picked").textContent = `${text}. The log of this run was too long for the page: no table.`;
      return;
    }
    const one = layoutAt(run, state.time).find((held) => held.request === picked);
    if (!one) {
      const status = run.status ? run.status[picked].replace("_", " ") : "not known";
      $("picked").textContent = `${text}. It holds no memory now (in the end: ${status}).`;
      return;
    }
    text += `; ${number(one.written)} of ${number(one.final)} tokens written`;
    const paged = run.block > 0;
    if (paged) text += `, ${counted(one.extents.length, "block")}`;
    $("picked").textContent = `${text}.`;
    const rows = [`<tr><th>logical block</th><th>${paged ? "physical block" : "address"}</th><th>filled</th><th></th></tr>`];
    one.extents.forEach((extent, logical) => {
      const upTo = (edge) => Math.min(Math.max(edge - extent.offset, 0), extent.slots);
      const edges = [0, upTo(one.written), upTo(one.final), upTo(one.asked), extent.slots];
      const parts = ["used", "reservation", "overprovision", "rounding"].map((name, nth) =>
        `<span style="width:${(100 * (edges[nth + 1] - edges[nth])) / extent.slots}%;background:${LEDGER[name]}"></span>`);
      rows.push(`<tr><td>${logical}</td><td>${number(paged ? extent.start / run.block : extent.start)}</td><td>${number(edges[1])} of ${number(extent.slots)}</td><td class="bar"><div>${parts.join("")}</div></td></tr>`);
    });
    table.innerHTML = rows.join("");
  }

  function drawTabs() {
    $("tabs").innerHTML = runs.map((run, nth) => `<button role="tab" data-run="${nth}" aria-selected="${nth === state.run}"></button>`).join("");
    [...$("tabs").children].forEach((tab, nth) => {
      tab.textContent = runs[nth].name;
      tab.onclick = () => chooseRun(nth);
    });
  }

  /** What a cell holds, in words. */
  function told(run, kind, request, offset, address, time) {
    const where = `address ${number(address)} at ${seconds(time)}`;
    if (request < 0) return `${kind === TAIL ? "tail: can never be handed out" : "free"}\n${where}`;
    const words = { [WRITTEN]: "written", [RESERVED]: "reserved, will be written", [UNUSED]: "asked for, never used", [ROUNDING]: "rounding, never used" };
    const place = run.block
      ? `logical block ${number(Math.floor(offset / run.block))}, slot ${number((offset % run.block) + 1)} of ${run.block} (physical block ${number(Math.floor(address / run.block))})`
      : `offset ${number(offset)} in its extent`;
    return `request ${number(request)}: prompt ${number(requests.prompt_tokens[request])}, output ${number(requests.output_tokens[request])} tokens\n${place}\n${words[kind]}\n${where}`;
  }

  function showTip(event, text) {
    const tip = $("tip");
    tip.textContent = text;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - width - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - height - 8)}px`;
  }

  /** The cell of a map that an event of plotly is about. */
  function mapCell(point) {
    const nth = point.data.customdata, run = runs[nth], { rows, columns, size } = run.map;
    const column = Math.max(0, Math.min(columns - 1, Math.round((point.x - data.start_s) / dx(run) - 0.5)));
    const row = Math.max(0, Math.min(rows - 1, Math.round(point.y / size - 0.5)));
    const cell = row * columns + column;
    const time = data.start_s + (column + 0.5) * dx(run);
    const address = Math.min(row * size + (size >> 1), run.capacity - 1);
    const request = run.map.request[cell] - 1;
    return { nth, run, time, address, kind: run.map.kind[cell], request, offset: offsetAt(run, cell, request, time, address) };
  }

  /** How far a slot is from the first one of its request. */
  function offsetAt(run, cell, request, time, address) {
    if (request < 0) return 0;
    if (!run.log) return run.map.offset[cell];
    const { extents } = layoutAt(run, time).find((held) => held.request === request);
    const extent = extents.find(({ start, slots }) => start <= address && address < start + slots);
    return extent.offset + address - extent.start;
  }

  function poolCell(point) {
    const run = runs[state.run], pool = state.pool, width = pool.across * run.pool.size;
    const cell = Math.floor(point.y / width) * pool.across + Math.floor(point.x / run.pool.size);
    if (cell >= pool.count) return null;
    return { run, time: state.time, address: pool.address(cell), kind: pool.kind[cell], request: pool.request[cell], offset: pool.offset[cell] };
  }

  const say = (event, cell) =>
    cell && showTip(event, told(cell.run, cell.kind, cell.request, cell.offset, cell.address, cell.time));

  async function setTime(time) {
    state.time = Math.min(Math.max(time, data.start_s), data.end_s);
    $("slider").value = Math.round((1000 * (state.time - data.start_s)) / (data.end_s - data.start_s));
    $("time").textContent = seconds(state.time);
    drawLedger();
    drawTable();
    await Promise.all([Plotly.relayout($("maps"), { "shapes[0].x0": state.time, "shapes[0].x1": state.time }), drawPool()]);
  }

  async function chooseRun(nth) {
    state.run = nth;
    [...$("tabs").children].forEach((tab, place) => tab.setAttribute("aria-selected", place === nth));
    drawLedger();
    drawTable();
    await drawPool();
  }

  async function pick(request) {
    const known = Number.isInteger(request) && request >= 0 && request < requests.arrival_s.length;
    state.picked = known ? request : NEVER;
    state.unknown = known || request === NEVER ? "" : String(request);
    $("request").value = request === NEVER ? "" : request;
    drawTable();
    const images = runs.map((_, nth) => nth * (1 + data.categories.length));
    await Promise.all([Plotly.restyle($("maps"), { source: runs.map(mapImage) }, images), drawPool()]);
  }

  let playing = null;
  function play(on) {
    clearInterval(playing);
    playing = null;
    $("play").textContent = on ? "■" : "▶";
    if (!on) return;
    if (state.time >= data.end_s) state.time = data.start_s;
    let busy = false; // a slow machine skips pictures instead of falling behind
    playing = setInterval(async () => {
      if (busy) return;
      busy = true;
      await setTime(state.time + (data.end_s - data.start_s) / 400);
      busy = false;
      if (state.time >= data.end_s) play(false);
    }, 60);
  }

  document.querySelector("h1").textContent = `${data.trace}: ${counted(requests.arrival_s.length, "request")}`;
  drawTabs();
  await drawMaps();
  $("slider").oninput = () => setTime(data.start_s + ($("slider").value / 1000) * (data.end_s - data.start_s));
  $("play").onclick = () => play(playing === null);
  $("request").onchange = () => pick($("request").value === "" ? NEVER : Number($("request").value));
  document.addEventListener("keydown", (event) => {
    if (event.target.tagName === "INPUT" && event.target.type === "number") return;
    if (event.key === " " && event.target.tagName !== "BUTTON") { event.preventDefault(); play(playing === null); }
  });
  const maps = $("maps");
  maps.on("plotly_hover", (event) => event.points[0].data.type === "image" && say(event.event, mapCell(event.points[0])));
  maps.on("plotly_unhover", () => ($("tip").hidden = true));
  maps.on("plotly_click", async (event) => {
    if (event.points[0].data.type !== "image") return;
    const cell = mapCell(event.points[0]);
    await chooseRun(cell.nth);
    await setTime(cell.time);
    await pick(cell.request);
  });
  await setTime(data.start_s + (data.end_s - data.start_s) / 3);
  $("pool").on("plotly_hover", (event) => say(event.event, poolCell(event.points[0])));
  $("pool").on("plotly_unhover", () => ($("tip").hidden = true));
  $("pool").on("plotly_click", (event) => { const cell = poolCell(event.points[0]); if (cell) pick(cell.request); });

  const words = { [WRITTEN]: "written", [RESERVED]: "reserved", [UNUSED]: "never used", [ROUNDING]: "rounding", [TAIL]: "tail" };
  $("key").innerHTML = Object.entries(words).map(([kind, word]) => `<span>${swatch(grey(kind))}${word}</span>`).join("") + `<span>${swatch("#fff")}free</span>`;
  const sizes = runs.map((run) => run.map.size), alike = sizes.every((size) => size === sizes[0]);
  const cell = alike ? counted(sizes[0], "slot") : `${sizes.map((size) => number(size)).join(", ")} slots (from the first map to the last)`;
  const bins = Math.max(...runs.map((run) => run.waste.used.length)), coarse = runs.some((run) => run.pool.size > 1);
  const missing = runs.filter((run) => !run.log).map((run) => run.name);
  $("note").textContent = `A hue a request, the darker the more used. Maps are binned: a cell is ${cell} × ${(dx(runs[0])).toPrecision(2)} s and shows what is in its middle; waste is the exact mean of ${counted(bins, "time bin")}. ` +
    (missing.length ? `The decision log of ${missing.join(", ")} is too long for this page: its pool is read off the map's cells.` : coarse ? "Block tables are exact at every instant; the pool at an instant shows the middles of its cells." : "The pool and the block tables are exact at every instant.");

  // For scripts and tests: where a slot is on the screen, and what is shown.
  window.kvfrag = {
    data, state, setTime, pick, chooseRun, layoutAt, iterationAt,
    place: (nth, time, address) => {
      const full = maps._fullLayout, box = maps.getBoundingClientRect(), y = full[`yaxis${nth ? 2 * nth + 1 : ""}`];
      return [box.left + full.xaxis._offset + full.xaxis.d2p(time), box.top + y._offset + y.d2p(address)];
    },
  };
  document.body.dataset.ready = "yes";
})();
