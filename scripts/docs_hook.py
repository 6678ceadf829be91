"""What MkDocs needs to build the documentation: a hook that adds the generated pages."""

from __future__ import annotations

from docs_reference import PageError, check_rendered, generated, with_site_links
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the site."""
    try:
        pages = generated()
    except PageError as error:
        raise PluginError(str(error)) from None
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to design notes lead to their copies in the site."""
    return with_site_links(page.file.src_uri, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Check a page after it was rendered."""
    try:
        check_rendered(page.file.src_uri, html)
    except PageError as error:
        raise PluginError(str(error)) from None
    return html
