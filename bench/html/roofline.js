'use strict';
// Draws one report: everything comes from the JSON in the page (bench/FORMATS.md).

const errors = [];
addEventListener('error', event => errors.push(event.message));

const report = JSON.parse(document.getElementById('data').textContent);
const points = report.points;
const byId = id => document.getElementById(id);
const unique = list => [...new Set(list)];
const passes = ['fwd', 'bwd_d', 'bwd_w'].filter(pass => points.some(p => p.pass === pass));
const algos = unique(points.map(p => p.algo)).sort();
const layers = unique(points.map(p => p.layer));
const batches = unique(points.map(p => p.batch)).sort((a, b) => a - b);

// One colour and one mark an algorithm, as in all charts of this program.
const table = JSON.parse(document.getElementById('marks').textContent);
const markOf = algo => {
  const {colour, mark} = table.algos[algo] ?? table.unlisted, shape = table.marks[mark];
  return {colour, style: shape.chart, turned: shape.turned ?? 0, fill: shape.open ? '#0000' : colour};
};
const marked = (algo, more = {}) => {
  const {colour, style, turned, fill} = markOf(algo);
  return {label: algo, backgroundColor: fill, borderColor: colour, pointBorderWidth: 2, pointStyle: style,
    pointRotation: turned, rotation: turned, ...more};
};

const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const short = value => value === 0 ? '0' : Math.abs(value) >= 100 ? value.toFixed(0)
  : Number(value.toPrecision(3)).toString();
const bytes = value => {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; value >= 1024 && i < units.length - 1; ++i) value /= 1024;
  return `${short(value)} ${units[i]}`;
};
const element = (tag, text, attributes = {}) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
};

const isDrawn = p => p.status !== 'above roof' && p.levels.length > 0;
const levelOf = p => p.levels.find(l => l.level === p.limit) || p.levels[p.levels.length - 1];
const bandwidth = (threads, level) => Math.max(0, ...report.roofs
  .filter(r => r.threads === threads && r.level === level).map(r => r.per_second));
const peakOf = (threads, dtype) => Math.max(0, ...report.roofs
  .filter(r => r.threads === threads && r.level === 'registers' && r.what === dtype)
  .map(r => r.per_second));

function shown() {
  const layer = byId('layer').value, algo = byId('algo').value, batch = byId('batch').value;
  return points.filter(p => (!layer || p.layer === layer) && (!algo || p.algo === algo) &&
    (!batch || p.batch === Number(batch)) && (!byId('chosen').checked || p.chosen));
}

// ---- charts

let charts = [];

function figure(parent, title, config, height) {
  const box = element('figure'), frame = element('div', undefined, {class: 'canvas'});
  if (height) frame.style.height = height;
  const canvas = element('canvas', undefined, {tabindex: '0', role: 'img', 'aria-label': title});
  frame.append(canvas);
  box.append(element('figcaption', title), frame);
  byId(parent).append(box);
  const chart = new Chart(canvas, config);
  charts.push(chart);
  canvas.addEventListener('keydown', event => step(event, chart));
  return chart;
}

// Arrow keys go through what can be hovered over, from left to right.
function step(event, chart) {
  const way = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
  if (!way) return;
  event.preventDefault();
  const stops = chart.data.datasets.flatMap((set, datasetIndex) => set.roof ? [] :
    set.data.map((value, index) => ({datasetIndex, index})));
  const place = s => chart.getDatasetMeta(s.datasetIndex).data[s.index];
  stops.sort((a, b) => place(a).x - place(b).x);
  if (stops.length === 0) return;
  chart.stop_at = ((chart.stop_at ?? (way > 0 ? -1 : 0)) + way + stops.length) % stops.length;
  const stop = stops[chart.stop_at];
  chart.setActiveElements([stop]);
  chart.tooltip.setActiveElements([stop], {x: place(stop).x, y: place(stop).y});
  chart.update('none');
}

const axis = (text, more = {}) => ({
  title: {display: true, text, color: style('--fore')},
  ticks: {color: style('--faint')}, grid: {color: style('--line')}, ...more,
});
// 1, 2 and 5 of each decade; of many decades the first.
const decades = {autoSkip: true, maxRotation: 0, callback(value) {
  const digit = value / 10 ** Math.floor(Math.log10(value) + 1e-9);
  const wanted = this.max / this.min > 300 ? [1] : [1, 2, 5];
  if (!wanted.some(d => Math.abs(d - digit) < 1e-6)) return '';
  return value < 0.001 ? value.toExponential(0) : Number(value.toPrecision(6)).toString();
}};
const logAxis = (text, more = {}) => axis(text, {
  type: 'logarithmic', ...more, ticks: {color: style('--faint'), ...decades},
});
const options = (scales, tooltip, more = {}) => ({
  animation: false, responsive: true, maintainAspectRatio: false, scales,
  interaction: {mode: 'nearest', intersect: true},
  plugins: {legend: {display: false}, tooltip: {callbacks: tooltip, displayColors: false}}, ...more,
});
const describe = p => [`${p.layer} ${p.pass}, batch ${p.batch}${p.count > 1 ? `, ${p.count} times` : ''}`,
  `${p.algo} ${p.config} ${p.layouts}`, `${short(p.ms)} ms, ${short(p.attained_gflops)} GFLOP/s`,
  p.levels.length ? `${short(levelOf(p).flops_per_byte)} FLOPs a byte (${levelOf(p).level})` : '',
  `${short(p.percent_of_roof)}% of its roof (${p.limit}), ${short(p.headroom_ms)} ms to save`,
  `error ${p.rel_error.toExponential(1)}, workspace ${bytes(p.workspace_bytes)}`];
const aboutPoint = {title: () => '', label: item => item.raw.p ? describe(item.raw.p) : ''};

const roofNames = {
  id: 'roofNames',
  afterDatasetsDraw(chart) {
    const {ctx, chartArea} = chart;
    ctx.save();
    ctx.font = '11px sans-serif';
    ctx.fillStyle = style('--faint');
    let before = -Infinity;  // where the roof before reached the peak
    for (const [i, set] of chart.data.datasets.entries()) {
      if (!set.roof) continue;
      const ends = chart.getDatasetMeta(i).data;
      if (set.flat) {
        ctx.textAlign = 'right';
        ctx.fillText(set.label, chartArea.right - 4, ends[0].y - 4);
        continue;
      }
      // Where the line enters the picture.
      const [a, b] = ends, slope = (b.y - a.y) / (b.x - a.x);
      const x = Math.max(chartArea.left, a.x + (chartArea.bottom - a.y) / slope) + 14;
      const y = a.y + (x - a.x) * slope, close = b.x - before < 16;
      before = b.x;
      if (x > b.x || Math.hypot(b.x - x, b.y - y) < ctx.measureText(set.label).width) continue;
      ctx.save();
      ctx.translate(x, y);
      ctx.rotate(Math.atan(slope));
      ctx.textAlign = 'left';
      ctx.fillText(set.label, 0, close ? 12 : -4);  // on its other side where there is no room
      ctx.restore();
    }
    ctx.restore();
  },
};

function drawRooflines(list) {
  for (const pass of passes) {
    const mine = list.filter(p => p.pass === pass && isDrawn(p));
    const all = points.filter(p => p.pass === pass && isDrawn(p));
    if (all.length === 0) continue;
    const {threads, dtype} = all[0];
    const xs = all.map(p => levelOf(p).flops_per_byte), ys = all.map(p => p.attained_gflops);
    const peak = peakOf(threads, dtype) / 1e9;
    const speeds = ['L1', 'L2', 'L3', 'memory'].map(l => bandwidth(threads, l) / 1e9).filter(Boolean);
    // The fastest level's roof needs room for its name.
    const left = Math.min(Math.min(...xs) / 2, peak / Math.max(...speeds) / 12 || Infinity);
    const right = Math.max(...xs, 2 * peak / Math.min(...speeds) || 10) * 2;
    const bottom = Math.min(...ys) / 2, top = (peak || Math.max(...ys)) * 2;
    const sets = algos.map(algo => marked(algo, {
      pointRadius: c => c.raw && c.raw.p.chosen ? 6 : 4, pointHoverRadius: 8,
      data: mine.filter(p => p.algo === algo)
        .map(p => ({x: levelOf(p).flops_per_byte, y: p.attained_gflops, p})),
    }));
    for (const level of ['L1', 'L2', 'L3', 'memory']) {
      const speed = bandwidth(threads, level) / 1e9;
      if (speed === 0) continue;
      const end = peak ? peak / speed : right;
      sets.push({roof: true, type: 'line', label: `${level} ${short(speed)} GB/s`,
        borderColor: style('--faint'), borderWidth: 1, pointRadius: 0, pointHitRadius: 0,
        data: [{x: Math.min(left, end / 2), y: speed * Math.min(left, end / 2)}, {x: end, y: speed * end}]});
    }
    if (peak) {
      sets.push({roof: true, flat: true, type: 'line', label: `${dtype} peak ${short(peak)} GFLOP/s`,
        borderColor: style('--fore'), borderWidth: 1.5, pointRadius: 0, pointHitRadius: 0,
        data: [{x: left, y: peak}, {x: right, y: peak}]});
    }
    figure('rooflines', pass, {type: 'scatter', data: {datasets: sets}, plugins: [roofNames],
      options: options({x: logAxis('FLOPs per byte', {min: left, max: right}),
        y: logAxis('GFLOP/s', {min: bottom, max: top})}, aboutPoint)});
  }
}

// What multiplies is the phase with most FLOPs; the others of a run come before it or after it.
const phaseKinds = [['before', 'before the multiplications'], ['multiply', 'the multiplications'],
  ['after', 'after them'], ['other', 'other']];
function kindsOf(phases) {
  const own = phases.filter(f => f.name !== 'other');
  const most = own.reduce((best, f, i) => f.flops > own[best].flops ? i : best, 0);
  return phases.map((f, i) => f.name === 'other' ? 'other' : i < most ? 'before' : i > most ? 'after' : 'multiply');
}

const phaseNames = {
  id: 'phaseNames',
  afterDatasetsDraw(chart) {
    const {ctx} = chart;
    ctx.save();
    ctx.font = '11px sans-serif';
    ctx.textAlign = 'center';
    ctx.textBaseline = 'middle';
    for (const [i, set] of chart.data.datasets.entries())
      for (const [j, bar] of chart.getDatasetMeta(i).data.entries()) {
        const {phase, kind} = set.data[j];
        if (!phase || kind === 'other' || ctx.measureText(phase.name).width + 6 > Math.abs(bar.x - bar.base)) continue;
        ctx.fillStyle = kind === 'multiply' ? style('--on-multiply') : style('--fore');
        ctx.fillText(phase.name, (bar.x + bar.base) / 2, bar.y);
      }
    ctx.restore();
  },
};

// Of the chosen algorithm for each layer; of one layer alone every algorithm. A phase has its place
// in the run; its colour is its kind's, so that none is an algorithm's.
function drawPhases(list) {
  const one = byId('layer').value !== '' || byId('algo').value !== '';
  const wanted = list.filter(p => p.phases.length > 0 && (one || p.chosen));
  byId('phases-what').textContent = wanted.length === 0
    ? 'The phases of these were not measured.'
    : `ms of one run, ${one ? 'every algorithm shown' : 'the chosen algorithms; choose a layer to see its others'}. ` +
      '“other” is threads that start, wait, or have less to do.';
  byId('phases-legend').hidden = wanted.length === 0;
  for (const pass of passes) {
    const mine = wanted.filter(p => p.pass === pass);
    if (mine.length === 0) continue;
    const kinds = mine.map(p => kindsOf(p.phases));
    const sets = Array.from({length: Math.max(...mine.map(p => p.phases.length))}, (_, place) => ({
      label: `${place + 1}`, borderColor: style('--back'), borderWidth: 1, borderSkipped: false,
      backgroundColor: mine.map((_, row) => style(`--${kinds[row][place] ?? 'other'}`)),
      data: mine.map((p, row) => ({x: p.phases[place]?.ms ?? 0, y: rowName(p), p, phase: p.phases[place],
        kind: kinds[row][place]})),
    }));
    const config = {type: 'bar', plugins: [phaseNames], data: {labels: mine.map(rowName), datasets: sets},
      options: options({x: axis('ms', {stacked: true}),
        y: axis('', {stacked: true, title: {display: false}, ticks: {color: style('--faint'), autoSkip: false}})},
      {title: items => items.length ? describe(items[0].raw.p)[0] : '',
        label: item => item.raw.phase ? [`${item.raw.phase.name} ${short(item.raw.phase.ms)} ms`,
          `${short(item.raw.phase.flops / 1e6)} MFLOP, ${bytes(item.raw.phase.bytes)}`,
          `${short(item.raw.phase.percent_of_roof)}% of roof`] : ''},
      {indexAxis: 'y'})};
    figure('phases', pass, config, `${Math.max(10, 6 + 1.5 * mine.length)}rem`);
  }
}
const rowName = p => {
  const layer = byId('layer').value === '' ? p.layer : '';
  const batch = batches.length > 1 && byId('batch').value === '' ? ` ×${p.batch}` : '';
  const name = `${layer.length > 22 ? layer.slice(0, 21) + '…' : layer}${batch}`;
  return byId('layer').value !== '' || byId('algo').value !== '' ? `${name} ${p.algo}`.trim() : name;
};

// Lines of {x, y} by name over `x`, of one layer per algorithm, of all layers their best summed.
function lines(rows, x) {
  const layer = byId('layer').value, algo = byId('algo').value, found = new Map();
  const mine = rows.filter(r => (!layer || r.layer === layer) && (!algo || r.algo === algo));
  const best = new Map(), whose = new Map();
  for (const r of mine) {
    const name = layer || algo ? `${r.pass} ${r.algo}` : `${r.pass}, the fastest of each layer`;
    whose.set(name, {pass: r.pass, algo: layer || algo ? r.algo : undefined});
    const key = JSON.stringify([name, r.layer, r[x]]);
    if (!best.has(key) || r.ms < best.get(key).ms) best.set(key, {name, x: r[x], layer: r.layer, ms: r.ms, count: r.count || 1});
  }
  const layersAt = new Map();  // a sum is only one where every layer is in it
  for (const b of best.values()) {
    const sums = found.get(b.name) || found.set(b.name, new Map()).get(b.name);
    sums.set(b.x, (sums.get(b.x) || 0) + b.count * b.ms / (x === 'batch' ? b.x : 1));
    const key = JSON.stringify([b.name, b.x]);
    layersAt.set(key, (layersAt.get(key) || 0) + 1);
  }
  return [...found].map(([name, sums]) => {
    const most = Math.max(...[...sums.keys()].map(at => layersAt.get(JSON.stringify([name, at]))));
    return {name, ...whose.get(name), data: [...sums].filter(([at]) => layersAt.get(JSON.stringify([name, at])) === most)
      .sort((a, b) => a[0] - b[0]).map(([at, ms]) => ({x: at, y: ms}))};
  }).filter(line => line.data.length > 1);
}

// The pass is in the dashes, the algorithm in colour and mark.
const dashes = {fwd: [], bwd_d: [6, 3], bwd_w: [2, 2]};

function drawCurves() {
  const batch = byId('batch').value, counts = new Map(points.map(p => [p.layer + p.pass, p.count]));
  const threadRows = report.curves.filter(c => (!batch || c.batch === Number(batch)) && c.batch === (Number(batch) || batches[0]))
    .map(c => ({...c, count: counts.get(c.layer + c.pass) || 1}));
  const kinds = [['batch', 'ms an image', points], ['threads', `ms at batch ${batch || batches[0]}`, threadRows]];
  let drawn = 0;
  for (const [x, y, rows] of kinds) {
    const found = lines(rows, x);
    if (found.length === 0) continue;
    ++drawn;
    const config = {type: 'line', data: {datasets: found.map(line => ({
      ...(line.algo ? marked(line.algo) : {borderColor: style('--fore'), backgroundColor: style('--fore')}),
      label: line.name, data: line.data, pointRadius: 4, borderDash: dashes[line.pass]}))},
    options: options({x: axis(x, {type: 'linear', ticks: {color: style('--faint'), stepSize: x === 'threads' ? 1 : undefined}}),
      y: axis(y, {beginAtZero: true})}, {title: items => items.length ? `${x} ${items[0].raw.x}` : '',
      label: item => `${item.dataset.label}: ${short(item.raw.y)} ms`})};
    config.options.plugins.legend = {display: true, position: 'bottom', labels: {color: style('--fore'), boxWidth: 12, usePointStyle: true}};
    figure('curves', `over ${x}`, config);
  }
  byId('curves-what').textContent = drawn ? 'Layers count as often as they occur in the net.'
    : 'This report has one batch and one number of threads: give --batch 1,16, or tune with other --threads too.';
}

const frontRings = {
  id: 'frontRings',
  afterDatasetsDraw(chart) {
    const {ctx} = chart;
    ctx.save();
    ctx.strokeStyle = style('--fore');
    for (const [i, set] of chart.data.datasets.entries())
      for (const [j, {front, r}] of set.data.entries()) {
        if (!front) continue;
        const {x, y} = chart.getDatasetMeta(i).data[j];
        ctx.beginPath();
        ctx.arc(x, y, r + 4, 0, 2 * Math.PI);
        ctx.stroke();
      }
    ctx.restore();
  },
};

function drawPareto(list) {
  const key = p => JSON.stringify([p.layer, p.pass, p.batch]);
  const best = new Map();
  for (const p of points) best.set(key(p), Math.min(best.get(key(p)) ?? Infinity, p.ms));
  const largest = Math.max(1, ...points.map(p => p.workspace_bytes));
  for (const pass of passes) {
    const mine = list.filter(p => p.pass === pass && p.rel_error > 0 && p.status !== 'above roof');
    if (mine.length === 0) continue;
    const beaten = p => points.some(q => key(q) === key(p) && q.ms <= p.ms && q.rel_error <= p.rel_error &&
      (q.ms < p.ms || q.rel_error < p.rel_error));
    const sets = algos.map(algo => marked(algo, {
      borderWidth: 2,
      data: mine.filter(p => p.algo === algo).map(p => ({x: p.ms / best.get(key(p)), y: p.rel_error,
        r: 3 + 15 * Math.sqrt(p.workspace_bytes / largest), p, front: !beaten(p)})),
    }));
    figure('pareto', pass, {type: 'bubble', plugins: [frontRings], data: {datasets: sets},
      options: options({x: logAxis('time over the fastest, ×', {min: 0.9}),
      y: logAxis('relative error')}, aboutPoint)});
  }
}

// ---- tables

const columns = [
  ['layer', p => p.layer], ['batch', p => p.batch, short], ['pass', p => p.pass],
  ['algorithm', p => p.algo], ['config', p => p.config], ['layouts', p => p.layouts],
  ['ms', p => p.ms, v => v.toFixed(3)], ['GFLOP/s', p => p.attained_gflops, v => v.toFixed(1)],
  ['FLOP/byte', p => p.levels.length ? levelOf(p).flops_per_byte : 0, short],
  ['limit', p => p.limit], ['roof', p => p.attainable_gflops, v => v.toFixed(1)],
  ['% of roof', p => p.percent_of_roof, v => v.toFixed(0)],
  ['headroom ms', p => p.headroom_ms, v => v.toFixed(3)],
  ['error', p => p.rel_error, v => v.toExponential(1)],
  ['workspace', p => p.workspace_bytes, bytes], ['status', p => p.chosen ? `${p.status}, chosen` : p.status],
];
let sorting = null;  // {column, way}

function fillTable(list) {
  const rows = sorting ? [...list].sort((a, b) => {
    const [, get] = columns[sorting.column], x = get(a), y = get(b);
    return sorting.way * (x < y ? -1 : x > y ? 1 : 0);
  }) : list;
  const head = element('tr'), table = byId('table');
  columns.forEach(([name, , show], i) => {
    const cell = element('th', undefined, {scope: 'col', class: show ? 'number' : ''});
    const button = element('button', name + (sorting?.column === i ? (sorting.way > 0 ? ' ▲' : ' ▼') : ''),
      {type: 'button', 'data-column': i});
    button.addEventListener('click', () => {
      sorting = {column: i, way: sorting?.column === i ? -sorting.way : 1};
      fillTable(shown());
      table.querySelector(`[data-column="${i}"]`).focus();
    });
    cell.append(button);
    head.append(cell);
  });
  table.tHead.replaceChildren(head);
  table.tBodies[0].replaceChildren(...rows.map(p => {
    const row = element('tr', undefined, {class: p.status === 'above roof' ? 'above' : p.chosen ? 'chosen' : ''});
    for (const [, get, show] of columns)
      row.append(element('td', show ? show(get(p)) : get(p), {class: show ? 'number' : ''}));
    return row;
  }));
}

function fillOnce() {
  const provenance = report.provenance;
  byId('what').textContent = [provenance.command, provenance.cpu || provenance.card, provenance.isa,
    `${provenance.threads} threads`, provenance.date].filter(Boolean).join(' · ');
  byId('bytes').textContent = `Bytes are ${report.bytes}.`;
  for (const [name, value] of Object.entries(provenance))
    byId('provenance').append(element('dt', name), element('dd', value));
  byId('notes').append(...report.notes.map(note => element('li', note)));
  for (const [id, values] of [['layer', layers], ['algo', algos], ['batch', batches]]) {
    byId(id).append(new Option('all', ''), ...values.map(v => new Option(v, v)));
    byId(id).addEventListener('change', draw);
  }
  byId('chosen').addEventListener('change', draw);
  byId('filters').addEventListener('submit', event => event.preventDefault());
  byId('legend').append(...algos.map(algo => {
    const item = element('li'), canvas = element('canvas', undefined, {width: 16, height: 16, 'aria-hidden': 'true'});
    const ctx = canvas.getContext('2d'), {colour, style, turned, fill} = markOf(algo);
    ctx.strokeStyle = colour;
    ctx.fillStyle = fill;
    ctx.lineWidth = 2;
    Chart.helpers.drawPoint(ctx, {pointStyle: style, rotation: turned, radius: 5, borderWidth: 2}, 8, 8);
    item.append(canvas, algo);
    return item;
  }));
  byId('phases-legend').append(...phaseKinds.map(([kind, text]) => {
    const item = element('li');
    item.append(element('span', undefined, {class: 'swatch', style: `background: var(--${kind})`, 'aria-hidden': 'true'}),
      text);
    return item;
  }));
  const above = points.filter(p => p.status === 'above roof').length;
  byId('above').hidden = above === 0;
  byId('above').textContent = `${above} points stand above their roof, which cannot be: they are in the table, not drawn.`;
  const head = element('tr');
  for (const name of ['threads', 'level', 'what', 'per second', 'noise', 'source']) head.append(element('th', name));
  byId('roofs').tHead.append(head);
  byId('roofs').tBodies[0].append(...report.roofs.map(r => {
    const row = element('tr');
    for (const text of [r.threads, r.level, r.what, `${short(r.per_second / 1e9)} ${r.level === 'registers' ? 'GFLOP' : 'GB'}`,
      r.measured ? `${(100 * r.noise).toFixed(1)}%` : '', r.measured ? 'measured' : 'clocks and units'])
      row.append(element('td', text));
    return row;
  }));
}

function draw() {
  for (const chart of charts) chart.destroy();
  charts = [];
  for (const id of ['rooflines', 'phases', 'curves', 'pareto']) byId(id).replaceChildren();
  const list = shown();
  byId('count').textContent = `${list.length} of ${points.length} points`;
  drawRooflines(list);
  drawPhases(list);
  drawCurves();
  drawPareto(list);
  fillTable(list);
}

// What a test asks for with #selftest: are the points there, does the filter filter?
function selftest() {
  const drawnPoints = () => charts.filter(c => c.canvas.closest('#rooflines'))
    .flatMap(c => c.data.datasets.filter(set => !set.roof).flatMap(set => set.data)).length;
  const rows = () => byId('table').tBodies[0].rows.length;
  const result = {points: points.length, drawn: drawnPoints(), rows: rows()};
  const set = (id, value) => {
    byId(id).value = value;
    byId(id).dispatchEvent(new Event('change'));
  };
  for (const [id, value] of [['layer', layers[0]], ['algo', algos[0]], ['batch', batches[0]]]) {
    set(id, value);
    result[id] = {value, drawn: drawnPoints(), rows: rows()};
    set(id, '');
  }
  const canvas = document.querySelector('#rooflines canvas');
  canvas.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));
  result.hover = charts[0].tooltip.body ? charts[0].tooltip.body[0].lines : [];
  result.again = drawnPoints();
  // One colour and mark an algorithm in every chart, and the first column stays where tables scroll.
  const seen = new Map();
  for (const set of charts.filter(c => c.canvas.closest('#rooflines, #pareto')).flatMap(c => c.data.datasets))
    if (!set.roof) seen.set(set.label, [...(seen.get(set.label) ?? []), `${set.borderColor} ${set.pointStyle} ${set.rotation}`]);
  result.marks = Object.fromEntries([...seen].map(([algo, list]) => [algo, unique(list)]));
  result.phases = unique(charts.filter(c => c.canvas.closest('#phases')).flatMap(c => c.data.datasets)
    .flatMap(set => set.data.flatMap(bar => bar.phase ? `${bar.phase.name}: ${bar.kind}` : [])));
  const box = byId('table').parentElement, cell = byId('table').tBodies[0].rows[0].cells[0];
  box.scrollLeft = 200;
  result.sticky = [box.scrollLeft, cell.getBoundingClientRect().left - box.getBoundingClientRect().left];
  result.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  result.errors = errors;
  byId('selftest').textContent = JSON.stringify(result);
}

fillOnce();
draw();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
matchMedia('print').addEventListener('change', draw);
if (location.hash === '#selftest') selftest();
