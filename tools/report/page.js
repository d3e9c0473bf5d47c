// Draws the plots of the page and makes them interactive. Sets data-plots="drawn:N/M" on the root
// element when done.
(() => {
  'use strict';
  const root = document.documentElement;
  // Vega measures labels on a canvas, which knows no CSS variables; colours are passed through.
  const font = getComputedStyle(root).getPropertyValue('--sans').trim();

  const config = {
    background: null,
    title: {
      anchor: 'start', frame: 'bounds', font, fontSize: 12, fontWeight: 'normal', color: 'var(--muted)', offset: 10,
    },
    axis: {
      labelFont: font, labelFontSize: 12, labelColor: 'var(--muted)', labelPadding: 6, labelOverlap: true,
      titleFont: font, titleFontSize: 12, titleFontWeight: 'normal', titleColor: 'var(--muted)', titlePadding: 10,
      domainColor: 'var(--rule)', tickColor: 'var(--muted)', tickSize: 4, gridColor: 'var(--rule)',
    },
    legend: {
      labelFont: font, labelFontSize: 12, labelColor: 'var(--muted)',
      titleFont: font, titleFontSize: 12, titleFontWeight: 'normal', titleColor: 'var(--muted)',
    },
  };

  class Drawing {
    constructor(figure) {
      this.figure = figure;
      this.container = figure.querySelector('.plot');
      this.spec = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    }

    async draw() {
      // Expressions are interpreted, because the page's security policy forbids eval.
      const runtime = vega.parse(this.spec, config, {ast: true});
      const logger = vega.logger(vega.Warn);
      let failure = null;
      logger.error = (error) => { failure = error; };
      this.view = new vega.View(runtime, {
        container: this.container, renderer: 'svg', expr: vega.expressionInterpreter, logger,
      });
      await this.view.width(this.width()).runAsync();
      if (failure) throw failure;
      new ResizeObserver(() => this.resize()).observe(this.container);
      this.answerLegend();
      this.offer();
      if (this.has('at')) this.answerPointer();
    }

    width() {
      return Math.max(200, Math.floor(this.container.clientWidth));
    }

    resize() {
      if (this.width() !== this.view.width()) this.view.width(this.width()).runAsync();
    }

    has(signal) {
      return (this.spec.signals || []).some((each) => each.name === signal);
    }

    // Offers the numbers and the picture for download.
    offer() {
      const line = document.createElement('p');
      line.className = 'take';
      const name = this.figure.querySelector('h3').textContent.trim().toLowerCase().replace(/[^\w]+/g, '-');
      const button = (kind, make) => {
        const made = document.createElement('button');
        made.type = 'button';
        made.textContent = kind;
        made.addEventListener('click', async () => {
          const link = document.createElement('a');
          link.href = URL.createObjectURL(await make());
          link.download = `${name}.${kind.toLowerCase()}`;
          link.click();
          URL.revokeObjectURL(link.href);
        });
        return made;
      };
      line.append(button('CSV', () => this.csv()), button('PNG', () => this.png()));
      this.figure.append(line);
    }

    csv() {
      const quoted = (cell) => `"${cell.textContent.trim().replaceAll('"', '""')}"`;
      const rows = [...this.figure.querySelectorAll('details tr')].map((row) => [...row.cells].map(quoted).join(','));
      return new Blob([rows.join('\n'), '\n'], {type: 'text/csv'});
    }

    // A canvas knows no CSS variables, so they are replaced by the current colours.
    async png() {
      const style = getComputedStyle(root);
      const plain = (value) => JSON.parse(
        JSON.stringify(value).replace(/var\((--[\w-]+)\)/g, (_, variable) => style.getPropertyValue(variable).trim()));
      const background = style.getPropertyValue('--paper').trim();
      const runtime = vega.parse(plain(this.spec), {...plain(config), background}, {ast: true});
      const view = new vega.View(runtime, {renderer: 'none', expr: vega.expressionInterpreter});
      if (this.has('hidden')) view.signal('hidden', this.view.signal('hidden'));
      const canvas = await view.width(this.width()).toCanvas(2);
      return new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
    }

    answerLegend() {
      if (!this.has('hidden')) return;
      const buttons = [...this.figure.querySelectorAll('.legend button')];
      for (const button of buttons) {
        button.addEventListener('click', () => {
          const shown = button.getAttribute('aria-pressed') === 'true';
          button.setAttribute('aria-pressed', String(!shown));
          const hidden = buttons.flatMap((each, i) => (each.getAttribute('aria-pressed') === 'true' ? [] : [i]));
          this.view.signal('hidden', hidden).runAsync();
        });
      }
    }

    answerPointer() {
      this.tip = document.createElement('div');
      this.tip.className = 'tip';
      this.tip.hidden = true;
      this.container.append(this.tip);
      this.container.addEventListener('pointermove', (event) => {
        const x = event.clientX - this.container.getBoundingClientRect().left - this.view.origin()[0];
        this.show(this.nearest(x));
      });
      this.container.addEventListener('pointerleave', () => this.show(null));
      this.container.addEventListener('blur', () => this.show(null));
      this.container.addEventListener('keydown', (event) => {
        const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
        if (!step) return;
        event.preventDefault();
        const xs = this.xs();
        const here = xs.indexOf(this.view.signal('at'));
        this.show(xs[here < 0 ? 0 : Math.min(xs.length - 1, Math.max(0, here + step))] ?? null);
      });
    }

    xs() {
      return [...new Set(this.view.data('points').map((point) => point.x))].sort((a, b) => a - b);
    }

    nearest(pixel) {
      const scale = this.view.scale('x');
      const distance = (x) => Math.abs(scale(x) - pixel);
      return this.xs().reduce((best, x) => (best === null || distance(x) < distance(best) ? x : best), null);
    }

    show(at) {
      if (at === this.view.signal('at')) return;
      this.view.signal('at', at).runAsync();
      this.tip.hidden = at === null;
      if (at !== null) this.fillTip(at);
    }

    fillTip(at) {
      const line = (className, ...children) => {
        const element = document.createElement('div');
        element.className = className;
        element.append(...children);
        return element;
      };
      const title = (this.spec.axes && this.spec.axes[0].title) || 'x';
      const keys = [...this.figure.querySelectorAll('.legend button')];
      const points = this.view.data('points').filter((point) => point.x === at);
      const rows = points.map((point) => {
        const key = keys[point.series] ? keys[point.series].cloneNode(true).childNodes : [];
        return line('row', ...key, line('value', point.label));
      });
      this.tip.replaceChildren(line('at', `${title}: ${points[0].place}`), ...rows);
      this.placeTip(this.view.origin()[0] + this.view.scale('x')(at));
    }

    // Places the tooltip right of x, or left of it; below the plot if neither side has room.
    placeTip(x) {
      const gap = 12;
      const room = this.container.clientWidth - this.tip.offsetWidth;
      const right = x + gap;
      const left = x - gap - this.tip.offsetWidth;
      this.tip.classList.toggle('below', right > room && left < 0);
      this.tip.style.left = `${right <= room ? right : Math.max(0, left)}px`;
    }
  }

  async function drawAll() {
    const figures = [...document.querySelectorAll('figure')];
    let drawn = 0;
    for (const figure of figures) {
      try {
        await new Drawing(figure).draw();
        ++drawn;
      } catch (error) {
        console.error(error);
        figure.querySelector('.plot').textContent = `This plot could not be drawn (${error.message || error}).`;
      }
    }
    root.dataset.plots = `drawn:${drawn}/${figures.length}`;
  }

  // Unfolds everything for printing.
  let folded = [];
  addEventListener('beforeprint', () => {
    folded = [...document.querySelectorAll('details:not([open])')];
    for (const each of folded) each.open = true;
  });
  addEventListener('afterprint', () => {
    for (const each of folded) each.open = false;
  });

  drawAll();
})();
