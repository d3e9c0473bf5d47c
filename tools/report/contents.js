// Builds the table of contents from the headings: at the side if there is room, else folded above
// the text.
(() => {
  'use strict';
  const headings = [...document.querySelectorAll('h2')];
  if (headings.length < 3) return;

  const fold = document.createElement('details');
  fold.className = 'contents';
  const title = document.createElement('summary');
  title.textContent = 'Contents';
  const list = document.createElement('nav');
  const links = headings.map((heading, i) => {
    heading.id = `part-${i + 1}`;
    const link = document.createElement('a');
    link.href = `#${heading.id}`;
    link.textContent = heading.textContent;
    return link;
  });
  list.append(...links);
  fold.append(title, list);
  document.querySelector('header').after(fold);

  const wide = matchMedia('(min-width: 80rem)');
  const unfold = () => { fold.open = wide.matches; };
  wide.addEventListener('change', unfold);
  unfold();
  list.addEventListener('click', () => { if (!wide.matches) fold.open = false; });

  // Marks the last heading above the middle of the screen.
  const mark = () => {
    const passed = headings.filter((heading) => heading.getBoundingClientRect().top < innerHeight / 2).length;
    links.forEach((link, i) => link.toggleAttribute('aria-current', i === passed - 1));
  };
  addEventListener('scroll', mark, {passive: true});
  mark();
})();
