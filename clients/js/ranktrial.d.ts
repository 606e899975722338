/** An id of a document or a unit; whole numbers are taken as their text. */
export type Id = string | number;

/** What to search for, and what both rankers found. */
export interface Search {
  query: string;
  /** Ids of ranker A's results, from the top. */
  a: Id[];
  /** Ids of ranker B's. */
  b: Id[];
  /** Whose search it is: a session's id, or user and day. The same unit, query and lists are the same draw. */
  unit?: Id;
  /** Results on the pages before. */
  offset?: number;
  /** Results on the page; all by default. */
  size?: number;
  /** Value of each attribute that the trial was declared to have, such as `{ device: "phone" }`. */
  segment?: Record<string, string>;
  /** Numbers known of the visitor before the trial, by the names declared with it, such as `{ clicks_last_month: 3 }`. */
  covariates?: Record<string, number>;
}

/** What to show. */
export interface Shown {
  /** The impression's id, to be sent back with clicks; empty where nothing was drawn. */
  id: string;
  /** Ids of the results, from the top. */
  ranking: string[];
  /** Why this is no draw, or null: of a stopped trial it is the list that was chosen, otherwise A's. */
  fallback: string | null;
}

export interface ClientOptions {
  /** API key with the scopes `serve` and `ingest`. Never in a page. */
  key?: string;
  /** For pages: events go to `/v1/beacon`, at once, without a key, and survive navigation. */
  beacon?: boolean;
  /** Milliseconds after which `rank` gives A's list; the service itself gives it after 250. Default 500. */
  timeout?: number;
  /** Milliseconds that an event waits for others to be sent with. Default 1000; of a beacon 0, at once. */
  every?: number;
  /** Events that may wait while the service cannot be reached. Default 10,000. */
  capacity?: number;
}

export interface Client {
  /** What to show for a query; never rejects: A's list, with the reason in `fallback`, if that cannot be told in time. */
  rank(trial: string, search: Search): Promise<Shown>;
  /** Tells of a click on a result; nothing is sent where there is no impression's id. `position` is where it was seen, from 1. */
  click(id: string, document: Id, position?: number): void;
  /**
   * Tells of what was done to a result, such as "cart" or "order". `value` is kept exactly; cents or a decimal text are best.
   * The same `event_id` counts once, and without one the action counts once on the result; a refund (below 0) needs its own.
   */
  event(id: string, document: Id, action: string, value?: number | bigint | string | null, event_id?: string): void;
  /** Tells what the page really displayed, from the top. */
  seen(id: string, documents: Id[]): void;
  /** Sends an event as it is: one of ours, or of OpenSearch's User Behavior Insights. */
  send(event: object): void;
  /** Sends what waits now; whether all that is under way is dealt with. Otherwise it is tried again by itself. */
  flush(): Promise<boolean>;
  /** In a page: hands what still waits to the browser, as the page is left. `track` does this by itself. */
  leave(): void;
  /** What became of events, by outcome, and how many were `lost`. */
  readonly counts: Readonly<Record<string, number>>;
}

/** A client of the service at one address, for the life of a process or a page. */
export function createClient(url: string, options?: ClientOptions): Client;

/** Marks up a list of results, whose children are in the order of `ranking`, for `track`. */
export function mark(list: HTMLElement, shown: Pick<Shown, "id" | "ranking">, offset?: number): void;

export interface TrackOptions {
  /** Where to look for results. Default: the whole document. */
  root?: Document | HTMLElement;
  /** Whether to tell what each list displayed, too. Default true. */
  seen?: boolean;
}

/** Sends every first click on `[data-document]` inside `[data-impression]`, also of what is added later, so that it survives navigation. */
export function track(url: string, options?: TrackOptions): Client;
