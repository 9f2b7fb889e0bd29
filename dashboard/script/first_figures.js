// Shows a page's first figures while the browser loads and starts the program that draws the page. The server asked the
// store for them when the page was requested; the page itself is given the same answer.
(() => {
  const LONGEST_MS = 20_000;
  const DRAWN = ['.vp-first-end', '.vp-empty', '[data-testid="stException"]'].map((each) => `#root ${each}`).join();
  const path = location.pathname, name = path.split('/').pop() || 'now';
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC';

  // Streamlit keeps what a viewer has chosen for each page; else it does as the system does.
  const scheme = () => {
    try {
      const chosen = JSON.parse(localStorage.getItem(`stActiveTheme-${path}-v2`));
      return {Light: 'light', Dark: 'dark'}[chosen] ?? 'light dark';
    } catch {
      return 'light dark';
    }
  };

  // Drawn, or left for another page.
  const isOver = () => document.querySelector(DRAWN) !== null || location.pathname !== path;

  const show = (html) => {
    if (isOver()) return;
    const shown = document.createElement('section');
    shown.className = 'vp-first';
    shown.setAttribute('aria-label', 'First figures');
    shown.style.colorScheme = scheme();
    shown.innerHTML = html;
    const end = () => { observer.disconnect(); shown.remove(); };
    const observer = new MutationObserver(() => { if (isOver()) end(); });
    observer.observe(document.getElementById('root'), {childList: true, subtree: true});
    document.body.append(shown);
    setTimeout(end, LONGEST_MS);  // a page that never comes must not leave figures that nothing refreshes
  };

  // The document counts as loaded once the program has run, which is what nobody is to wait for.
  const parsed = () => new Promise((done) => {
    const look = () => (document.getElementById('root') ? done() : setTimeout(look, 10));
    look();
  });
  fetch(`./_first/${name}${location.search}`, {headers: {'x-time-zone': zone}})
    .then(async (answer) => {
      if (answer.status !== 200) return;
      const html = await answer.text();
      await parsed();
      show(html);
    })
    .catch(() => {});  // the page itself says what is wrong
})();
